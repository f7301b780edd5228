"""How the outputs of forward hang together: nested tuples, lists and dicts, and memory that they share.

A dict's entries are taken by their keys, not in their order: a caller asks for them by name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from kernelwright.tools.tensor_memory import address_range, has_memory, overlap, storage_of
from kernelwright.tools.trace.trace import output_leaves

MAX_KEY_CHARACTERS = 100
"""Characters of a key that count, as in a trace."""
PLAIN_NUMBER_TOLERANCE = 1e-6
"""How far a plain number that the host works out may be from the reference's, relative to it."""


def flatten(outputs: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dicts: those of a dict in the order of its keys' texts. A dataclass is a
    dict of its fields.
    """
    outputs = _fields_as_dict(outputs)
    if isinstance(outputs, tuple | list):
        return [leaf for item in outputs for leaf in flatten(item)]
    if isinstance(outputs, dict):
        return [leaf for _, item in by_key(outputs) for leaf in flatten(item)]
    return [outputs]


def _fields_as_dict(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value


def by_key(entries: dict[Any, Any]) -> list[tuple[str, Any]]:
    """The entries of a dict by the texts of their keys, sorted."""
    return sorted(
        ((str(key)[:MAX_KEY_CHARACTERS], item) for key, item in entries.items()),
        key=lambda entry: entry[0],
    )


def paths(outputs: Any) -> list[str]:
    """Returns where each leaf lies, in the order of `flatten`: empty for a lone tensor, `[0][mean]` within a tuple's
    dict. Lists and tuples are alike.
    """
    outputs = _fields_as_dict(outputs)
    if isinstance(outputs, tuple | list):
        return [f"[{number}]{path}" for number, item in enumerate(outputs) for path in paths(item)]
    if isinstance(outputs, dict):
        return [f"[{key}]{path}" for key, item in by_key(outputs) for path in paths(item)]
    return [""]


def describe_difference(outputs: Any, wanted_paths: Sequence[str], wanted: Sequence[Any]) -> str:
    """Where the outputs of a trace are nested otherwise than the reference's, or a plain value among them is another:
    one line; empty where nothing differs.

    wanted: the reference's leaves.
    """
    mine = paths(_as_python(outputs))
    if len(mine) != len(wanted):
        return f"forward returns {len(mine)} outputs, the reference {len(wanted)}"
    if mine != list(wanted_paths):
        lacking = next((p for p in wanted_paths if p not in mine), wanted_paths[0])
        what = f"an output at {lacking}" if lacking else "one tensor by itself"
        return f"the outputs are nested otherwise than the reference's, which gives {what}"
    for path, leaf, value in zip(mine, output_leaves(outputs), wanted, strict=True):
        if not is_same_plain_value(leaf, value):
            return f"the output{' at ' + path if path else ''} is not {value!r}, which the reference gives"
    return ""


def _as_python(outputs: Any) -> Any:
    if isinstance(outputs, list | tuple):
        return [_as_python(item) for item in outputs]
    if isinstance(outputs, dict) and len(outputs) == 1:
        ((tag, body),) = outputs.items()
        if tag == "tuple" and isinstance(body, list | tuple):
            return [_as_python(item) for item in body]
        if tag == "dict" and isinstance(body, dict):
            return {key: _as_python(item) for key, item in body.items()}
    return None


def is_same_plain_value(mine: Any, wanted: Any) -> bool:
    """Whether a plain value of a trace is the reference's. What a trace has no plain value for is not compared."""
    if isinstance(mine, dict):
        ((tag, body),) = mine.items() if len(mine) == 1 else (("", None),)
        if tag == "float":
            if body not in ("inf", "-inf", "nan"):
                return False
            mine = float(str(body))
        elif tag == "dtype":
            return str(wanted) == f"torch.{body}"
        else:
            return True
    if isinstance(mine, float) and isinstance(wanted, float):
        return math.isclose(mine, wanted, rel_tol=PLAIN_NUMBER_TOLERANCE, abs_tol=1e-9) or (
            math.isnan(mine) and math.isnan(wanted)
        )
    plain = wanted is None or isinstance(wanted, bool | int | float | str)
    return not plain or (type(mine) is type(wanted) and bool(mine == wanted))


def overlaps(tensor: Any) -> bool:
    """Whether two elements of a strided tensor may lie in one place: a stride of 0, or windows over one memory."""
    import torch

    if tensor.layout is not torch.strided or not tensor.numel():
        return False
    reach = 0
    steps = sorted((s, n) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1)
    for step, count in steps:
        if step <= reach:
            return True
        reach += step * (count - 1)
    return False


def shared_memory(outputs: Sequence[Any]) -> list[int | None]:
    """For each output the first one before it that has an element in a place of its own; None where there is none.

    Parts of one buffer that lie beside each other share nothing.
    """
    return [
        next((j for j in range(i) if _overlap(outputs[j], outputs[i])), None)
        for i in range(len(outputs))
    ]


def _overlap(one: Any, other: Any) -> bool:
    import torch

    if not (has_memory(one) and has_memory(other)) or storage_of(one) != storage_of(other):
        return False
    if not overlap(one, other):
        return False
    (low, high), (begin, end) = address_range(one), address_range(other)
    if one.element_size() != other.element_size() or (low - begin) % one.element_size():
        return True
    size, first = one.element_size(), min(low, begin)
    taken = torch.zeros((max(high, end) - first) // size, dtype=torch.bool, device=one.device)
    taken.as_strided(one.shape, one.stride(), (low - first) // size).fill_(True)
    return bool(taken.as_strided(other.shape, other.stride(), (begin - first) // size).any())

"""Compares the structure of forward's outputs: nested tuples, lists and dicts, and shared memory.

Dict entries are matched by key, not by order: callers access them by name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.tensor_memory import address_range, has_memory, overlap, storage_of
from kernelwright.tools.trace.trace import output_leaves

if TYPE_CHECKING:
    import torch


MAX_KEY_CHARACTERS = 100
"""Maximum length of a compared key, as in a trace."""
PLAIN_NUMBER_TOLERANCE = 1e-6
"""Relative tolerance of plain numbers computed by the host code."""


def flatten(outputs: object) -> list[Any]:
    """Returns the leaves of nested tuples, lists and dicts; a dict's in order of its keys' texts.

    A dataclass counts as a dict of its fields.
    """
    outputs = _fields_as_dict(outputs)
    if isinstance(outputs, tuple | list):
        return [leaf for item in outputs for leaf in flatten(item)]
    if isinstance(outputs, dict):
        return [leaf for _, item in by_key(outputs) for leaf in flatten(item)]
    return [outputs]


def _fields_as_dict(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value


def by_key(entries: dict[Any, Any]) -> list[tuple[str, Any]]:
    """Returns a dict's entries with the texts of their keys, sorted."""
    return sorted(
        ((str(key)[:MAX_KEY_CHARACTERS], item) for key, item in entries.items()),
        key=lambda entry: entry[0],
    )


def paths(outputs: object) -> list[str]:
    """Returns the path of each leaf, in the order of `flatten`: empty for a lone tensor,
    `[0][mean]` within a tuple's dict.

    Lists and tuples are treated alike.
    """
    outputs = _fields_as_dict(outputs)
    if isinstance(outputs, tuple | list):
        return [f"[{number}]{path}" for number, item in enumerate(outputs) for path in paths(item)]
    if isinstance(outputs, dict):
        return [f"[{key}]{path}" for key, item in by_key(outputs) for path in paths(item)]
    return [""]


def describe_difference(
    outputs: object, expected_paths: Sequence[str], expected_leaves: Sequence[Any]
) -> str:
    """Describes, in a line, outputs of a trace nested differently from the reference's, or a
    differing plain value.

    expected_paths, expected_leaves: those of the reference. Returns "" without a difference.
    """
    mine = paths(_as_python(outputs))
    if len(mine) != len(expected_leaves):
        return f"forward returns {len(mine)} outputs, the reference {len(expected_leaves)}"
    if mine != list(expected_paths):
        lacking = next((p for p in expected_paths if p not in mine), expected_paths[0])
        expected_form = f"an output at {lacking}" if lacking else "one tensor by itself"
        return f"the outputs are nested otherwise than the reference's, which gives {expected_form}"
    for path, leaf, value in zip(mine, output_leaves(outputs), expected_leaves, strict=True):
        if not is_same_plain_value(leaf, value):
            return f"the output{' at ' + path if path else ''} is not {value!r}, which the reference gives"
    return ""


def _as_python(outputs: object) -> Any:
    if isinstance(outputs, list | tuple):
        return [_as_python(item) for item in outputs]
    if isinstance(outputs, dict) and len(outputs) == 1:
        ((tag, body),) = outputs.items()
        if tag == "tuple" and isinstance(body, list | tuple):
            return [_as_python(item) for item in body]
        if tag == "dict" and isinstance(body, dict):
            return {key: _as_python(item) for key, item in body.items()}
    return None


def is_same_plain_value(mine: object, expected: Any) -> bool:
    """Compares a plain value of a trace with the reference's; True for values without a plain form
    in traces."""
    if isinstance(mine, dict):
        ((tag, body),) = mine.items() if len(mine) == 1 else (("", None),)
        if tag == "float":
            if body not in ("inf", "-inf", "nan"):
                return False
            mine = float(str(body))
        elif tag == "dtype":
            return str(expected) == f"torch.{body}"
        else:
            return True
    if isinstance(mine, float) and isinstance(expected, float):
        return math.isclose(mine, expected, rel_tol=PLAIN_NUMBER_TOLERANCE, abs_tol=1e-9) or (
            math.isnan(mine) and math.isnan(expected)
        )
    plain = expected is None or isinstance(expected, bool | int | float | str)
    return not plain or (type(mine) is type(expected) and bool(mine == expected))


def overlaps(tensor: torch.Tensor) -> bool:
    """Returns True if two elements of a strided tensor may share an address: a stride of 0, or
    overlapping windows.

    Example: shape (4, 3), strides (2, 1) overlaps: element [0, 2] is element [1, 0].
    """
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
    """Returns for each output the first earlier output with a common element; None if there is
    none.

    Disjoint parts of a common buffer share nothing.
    """
    return [
        next((j for j in range(i) if _overlap(outputs[j], outputs[i])), None)
        for i in range(len(outputs))
    ]


def _overlap(first_tensor: Any, second_tensor: Any) -> bool:
    import torch

    if not (has_memory(first_tensor) and has_memory(second_tensor)) or storage_of(
        first_tensor
    ) != storage_of(second_tensor):
        return False
    if not overlap(first_tensor, second_tensor):
        return False
    (low, high), (begin, end) = address_range(first_tensor), address_range(second_tensor)
    if (
        first_tensor.element_size() != second_tensor.element_size()
        or (low - begin) % first_tensor.element_size()
    ):
        return True
    size, first = first_tensor.element_size(), min(low, begin)
    occupied = torch.zeros(
        (max(high, end) - first) // size, dtype=torch.bool, device=first_tensor.device
    )
    occupied.as_strided(first_tensor.shape, first_tensor.stride(), (low - first) // size).fill_(
        True
    )
    return bool(
        occupied.as_strided(
            second_tensor.shape, second_tensor.stride(), (begin - first) // size
        ).any()
    )

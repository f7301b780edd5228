"""Runs `tl.reduce` and `tl.associative_scan` for many programs at once, on blocks with an extra
first axis.

Covers any combining function and several tensors (argmax, cumulative sum, Welford's mean and
variance), by calling the interpreter's own implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernelwright.tools.replaying.interpreter.recording.language import Language, array
from kernelwright.tools.replaying.interpreter.recording.whole_batches import Batched, agrees

LAST_PARAMETERS = {"reduce": "keep_dims", "associative_scan": "reverse"}
"""Operation -> its last parameter."""
MAX_COMBINED_ELEMENTS = 1 << 18
"""Maximum number of elements per combined block: Triton limits the size of a block."""


class Combination(NamedTuple):
    """Parameters of a reduction or scan, without its tensors."""

    axis: int | None
    combine: Any
    last: Any
    """Value of `keep_dims` (reduce) or `reverse` (associative_scan)."""


def parse_combination(
    name: str, arguments: Sequence[Any], named: Mapping[str, Any]
) -> Combination | None:
    """Reads the parameters from the operation's arguments; None for a form of call that is not
    supported."""
    parameters = ("input", "axis", "combine_fn", LAST_PARAMETERS[name])
    values_by_name = dict(zip(parameters, arguments, strict=False))
    values_by_name |= {
        k: v for k, v in named.items() if not k.startswith("_")
    }  # the language's own, which is not looked at
    if not {"input", "axis", "combine_fn"} <= values_by_name.keys() <= {*parameters}:
        return None
    last = values_by_name.get(LAST_PARAMETERS[name], False)
    if type(values_by_name["axis"]) not in (int, type(None)) or not isinstance(last, bool):
        return None
    return Combination(values_by_name["axis"], values_by_name["combine_fn"], last)


def tensors_of(value: object, lang: Language) -> list[Any]:
    """Returns the tensors that an operation combines; empty if they are not all tensors."""
    parts = list(value) if type(value) is tuple else [value]
    return parts if all(isinstance(part, lang.tensor) for part in parts) else []


class _Call(NamedTuple):
    """A reduction or scan as a function of NumPy arrays."""

    function: Callable[..., Any]
    combination: Combination
    parameter: str
    """Name of the last parameter."""
    takes_tuple: bool
    """The first argument is a tuple of tensors."""
    types: tuple[Any, ...]
    """Types of the tensors, for a single program."""
    lang: Language

    def of(self, arrays: Sequence[Any], types: Sequence[Any], axis: int | None) -> list[Any]:
        """Returns the result arrays."""
        lang = self.lang
        tensors = [
            lang.tensor(lang.handle(a, kind.scalar), kind)
            for a, kind in zip(arrays, types, strict=True)
        ]
        results = self.function(
            tuple(tensors) if self.takes_tuple else tensors[0],
            axis,
            self.combination.combine,
            **{self.parameter: self.combination.last},
        )
        return [
            array(result.handle)
            for result in (results if isinstance(results, list | tuple) else [results])
        ]

    def of_one(self, *arrays: Any) -> list[Any]:
        """Evaluates the combination for a single program."""
        return self.of(arrays, self.types, self.combination.axis)

    def of_many(self, arrays: Sequence[Any], templates: Sequence[Any]) -> list[Any]:
        """Evaluates the combination for all programs along the arrays' first axis.

        templates: a result array of a single program each, for the shapes.
        """
        count, axis = len(arrays[0]), self.combination.axis
        # The number of programs is padded to a power of two, as required of every block.
        program_indices = (
            np.arange(1 << (count - 1).bit_length()) % count
        )  # a power of two, as every block
        blocks = [np.ascontiguousarray(a[program_indices]) for a in arrays]
        if axis is None:
            blocks, axis = [b.reshape(len(program_indices), -1) for b in blocks], 0
        types = [
            self.lang.block(kind.scalar, list(b.shape))
            for kind, b in zip(self.types, blocks, strict=True)
        ]
        results = self.of(blocks, types, axis + 1 if axis >= 0 else axis)
        return [m[:count].reshape(count, *k.shape) for m, k in zip(results, templates, strict=True)]


def together(
    name: str, function: Callable[..., Any], value: object, combination: Combination, result: object,
    moves: Sequence[bool], lang: Language,
) -> Batched | None:  # fmt: skip
    """Returns the batched form of an operation; None if its results differ from those of two single
    programs.

    value: the tensors. moves: the operands that may differ between programs.
    """
    tensors, takes_tuple = tensors_of(value, lang), type(result) in (list, tuple)
    operands = [array(t.handle) for t in tensors]
    if any(
        not t.type.is_block() or a.shape != operands[0].shape
        for t, a in zip(tensors, operands, strict=True)
    ):
        return None
    call = _Call(
        function,
        combination,
        LAST_PARAMETERS[name],
        type(value) is tuple,
        tuple(t.type for t in tensors),
        lang,
    )
    templates = [np.zeros_like(output) for output in call.of_one(*operands)]
    at_once = max(1, MAX_COMBINED_ELEMENTS // max(operands[0].size, 1))

    def combined(values: list[Any], leads: Sequence[bool]) -> Any:
        count = next(len(v) for v, lead in zip(values, leads, strict=True) if lead)
        whole = [
            v if lead else np.broadcast_to(v, (count, *v.shape))
            for v, lead in zip(values, leads, strict=True)
        ]
        parts = [
            call.of_many([w[i : i + at_once] for w in whole], templates)
            for i in range(0, count, at_once)
        ]
        joined = [
            np.concatenate(output) if len(parts) > 1 else output[0]
            for output in zip(*parts, strict=True)
        ]
        return joined if takes_tuple else joined[0]

    return combined if agrees(combined, call.of_one, operands, moves) else None

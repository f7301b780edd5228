"""`tl.reduce` and `tl.associative_scan` of any combining function and of several tensors (an argmax, a cumulative sum,
Welford's mean and variance) for many programs at once: the interpreter's own way, on blocks with one more axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernelwright.tools.replaying.interpreter.recording.language import Language, array
from kernelwright.tools.replaying.interpreter.recording.whole_batches import Batched, agrees

NAMES = {"reduce": "keep_dims", "associative_scan": "reverse"}
"""The operations, and the last parameter of each."""
MAX_ELEMENTS = 1 << 18
"""Elements of the blocks that are combined at once: Triton has a limit on them."""


class Combination(NamedTuple):
    """What an operation was asked for, beside its tensors."""

    axis: int | None
    combine: Any
    last: Any
    """`keep_dims` or `reverse`."""


def asked_for(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Combination | None:
    """None where it is asked in a way that is not known here. arguments and named: of the operation."""
    parameters = ("input", "axis", "combine_fn", NAMES[name])
    given = dict(zip(parameters, arguments, strict=False))
    given |= {
        k: v for k, v in named.items() if not k.startswith("_")
    }  # the language's own, which is not looked at
    if not {"input", "axis", "combine_fn"} <= given.keys() <= {*parameters}:
        return None
    last = given.get(NAMES[name], False)
    if type(given["axis"]) not in (int, type(None)) or not isinstance(last, bool):
        return None
    return Combination(given["axis"], given["combine_fn"], last)


def tensors_of(value: Any, lang: Language) -> list[Any]:
    """The tensors that an operation combines; none where they are not told apart here."""
    parts = list(value) if type(value) is tuple else [value]
    return parts if all(isinstance(one, lang.tensor) for one in parts) else []


class _Call(NamedTuple):
    """An operation on arrays in the place of its tensors."""

    function: Callable[..., Any]
    asked: Combination
    parameter: str
    """The name of its last one."""
    several: bool
    """Whether it is given a tuple of tensors."""
    types: tuple[Any, ...]
    """Of its tensors, for one program."""
    lang: Language

    def of(self, arrays: Sequence[Any], types: Sequence[Any], axis: int | None) -> list[Any]:
        """The arrays of its results."""
        lang = self.lang
        given = [
            lang.tensor(lang.handle(a, kind.scalar), kind)
            for a, kind in zip(arrays, types, strict=True)
        ]
        made = self.function(
            tuple(given) if self.several else given[0],
            axis,
            self.asked.combine,
            **{self.parameter: self.asked.last},
        )
        return [array(one.handle) for one in (made if isinstance(made, list | tuple) else [made])]

    def of_one(self, *arrays: Any) -> list[Any]:
        """As one program has it."""
        return self.of(arrays, self.types, self.asked.axis)

    def of_many(self, arrays: Sequence[Any], kept: Sequence[Any]) -> list[Any]:
        """The results of as many programs as the arrays' first axis has places. kept: those of one program."""
        count, axis = len(arrays[0]), self.asked.axis
        places = np.arange(1 << (count - 1).bit_length()) % count  # a power of two, as every block
        blocks = [np.ascontiguousarray(a[places]) for a in arrays]
        if axis is None:
            blocks, axis = [b.reshape(len(places), -1) for b in blocks], 0
        types = [
            self.lang.block(kind.scalar, list(b.shape))
            for kind, b in zip(self.types, blocks, strict=True)
        ]
        made = self.of(blocks, types, axis + 1 if axis >= 0 else axis)
        return [m[:count].reshape(count, *k.shape) for m, k in zip(made, kept, strict=True)]


def together(
    name: str, function: Callable[..., Any], value: Any, asked: Combination, made: Any, moves: Sequence[bool],
    lang: Language,
) -> Batched | None:  # fmt: skip
    """The batched form of an operation; None where it does not give what each of two programs gets alone.

    value: its tensors. moves: which of them may differ between programs.
    """
    tensors, several = tensors_of(value, lang), type(made) in (list, tuple)
    given = [array(t.handle) for t in tensors]
    if any(
        not t.type.is_block() or a.shape != given[0].shape
        for t, a in zip(tensors, given, strict=True)
    ):
        return None
    call = _Call(
        function, asked, NAMES[name], type(value) is tuple, tuple(t.type for t in tensors), lang
    )
    kept = [np.zeros_like(one) for one in call.of_one(*given)]
    at_once = max(1, MAX_ELEMENTS // max(given[0].size, 1))

    def combined(values: list[Any], leads: Sequence[bool]) -> Any:
        count = next(len(v) for v, lead in zip(values, leads, strict=True) if lead)
        whole = [
            v if lead else np.broadcast_to(v, (count, *v.shape))
            for v, lead in zip(values, leads, strict=True)
        ]
        parts = [
            call.of_many([w[i : i + at_once] for w in whole], kept)
            for i in range(0, count, at_once)
        ]
        joined = [
            np.concatenate(one) if len(parts) > 1 else one[0] for one in zip(*parts, strict=True)
        ]
        return joined if several else joined[0]

    return combined if agrees(combined, call.of_one, given, moves) else None

"""Whether a problem only moves values: each element of its output is one of its inputs' elements, always the same one
whatever they hold (a transposition, an upsampling, a window, a roll), perhaps rounded.

There a kernel's work is the move, and operators of torch that lay values out anew do that work. Found by experiment:
each output must hold, on every draw, what one input holds.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

from kernelwright.tools.expected.prepared_problem import (
    ExpectedOutputs,
    PreparedProblem,
    expected_outputs,
)
from kernelwright.tools.numerics.tolerance import real_parts
from kernelwright.tools.references.input_distributions import Draw

MAX_EXAMINED_ELEMENTS = 1 << 22
"""Elements of inputs and outputs together, above which nothing is examined on a CPU, where they are sorted."""
MAX_EXAMINED_ELEMENTS_ON_GPU = 1 << 26
"""The same on a GPU: half a gigabyte as float64, some of it several times."""
ROUNDING_TYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
"""Types that a value may have been rounded to on its way."""
LOOKED_FOR_FIRST = 16
"""Outputs that are looked for among the inputs before all of them are: where one is not found, that is the answer."""
MAX_DRAWS = 24
"""Draws that are examined where fewer do not tell the places of equal values apart: booleans, small integers."""


def only_moves(draws: Iterable[ExpectedOutputs]) -> bool | None:
    """Two draws or more of one problem at one size, of whatever types; as many are taken as are needed.

    None where there are too many elements to examine.
    """
    trails = [_Trail(name) for name in ROUNDING_TYPES]
    for count, draw in enumerate(itertools.islice(draws, MAX_DRAWS), 1):
        given, made = _values(draw.inputs), _values(draw.eager)
        if given is None or made is None:
            return False
        if given.numel() + made.numel() > (
            MAX_EXAMINED_ELEMENTS_ON_GPU if made.is_cuda else MAX_EXAMINED_ELEMENTS
        ):
            return None
        trails = [
            t for t in trails if t.follow(given, made) and (count < 2 or t.leads_everywhere())
        ]
        if not trails:
            return False
        if count > 1 and any(t.tells_places_apart() for t in trails):
            return True
    return True


def draws_of(prepared: PreparedProblem, seed: int) -> Iterator[ExpectedOutputs]:
    """Yields as many draws of a problem at one size as anybody asks for, half of them signed."""
    for number in itertools.count():
        yield expected_outputs(
            prepared, Draw.SIGNED if number % 2 else Draw.OWN, seed + 7919 * number, exact=False
        )


class _Trail:
    """Each element's values over several draws, as one number: elements that always held the same have the same."""

    def __init__(self, rounded: str) -> None:
        self._rounded, self._random = rounded, random.Random(rounded)
        self._source: Any = None
        self._made: Any = None
        self._constant: Any = None
        self._first: Any = None

    def follow(self, given: Any, made: Any) -> bool:
        """Adds a draw; False where its outputs have another size than those before."""
        import torch

        weight = self._random.uniform(1, 2)
        kind = getattr(torch, self._rounded)
        source = (given if self._rounded == "float32" else given.to(kind).double()) * weight
        if self._source is None:
            self._source, self._made, self._first = source, made * weight, made
            self._constant = torch.ones_like(made, dtype=torch.bool)
            return True
        if made.shape != self._made.shape or source.shape != self._source.shape:
            return False
        self._constant &= made == self._first
        self._source, self._made = self._source + source, self._made + made * weight
        return True

    def leads_everywhere(self) -> bool:
        """Whether each output held an input's values all along, or one value (padding); and not all only one."""
        import torch

        if not all(
            map(
                self._leads_to,
                range(0, self._made.numel(), -(-self._made.numel() // LOOKED_FOR_FIRST)),
            )
        ):
            return False
        found = torch.isin(self._made, self._source)
        return bool((found & ~self._constant).any()) and bool((found | self._constant).all())

    def _leads_to(self, place: int) -> bool:
        """Whether the output at a place held an input's values all along, or one value."""
        return bool(self._constant[place]) or bool((self._source == self._made[place]).any())

    def tells_places_apart(self) -> bool:
        """Whether no two inputs held the same all along."""
        import torch

        return int(torch.unique(self._source).numel()) == self._source.numel()


def gives_back_inputs(expected: ExpectedOutputs) -> bool:
    """Whether every expected output holds just what an input holds, in its type: kernels that copy are right then."""
    return _holds_inputs(expected, converted=False)


def converts_inputs(expected: ExpectedOutputs) -> bool:
    """Whether every expected output holds just what an input holds, some of them in another type: kernels that copy
    from one type to another are right then, and torch's conversions are the work.
    """
    return not _holds_inputs(expected, converted=False) and _holds_inputs(expected, converted=True)


def _holds_inputs(expected: ExpectedOutputs, converted: bool) -> bool:
    import torch

    given = [v.reshape(-1) for v in expected.inputs if isinstance(v, torch.Tensor)]
    wanted = [o.reshape(-1) for o in expected.eager if isinstance(o, torch.Tensor)]
    return all(
        any(
            w.shape == g.shape and (converted or w.dtype == g.dtype) and torch.equal(w, g.to(w.dtype)) for g in given
        )
        for w in wanted
    )  # fmt: skip


def _values(tensors: list[Any]) -> Any:
    """All elements as float64, one after the other; NaN and infinities as numbers. None where there are none."""
    import torch

    parts = [
        real_parts(v.detach()).double().reshape(-1) for v in tensors if isinstance(v, torch.Tensor)
    ]
    joined = torch.cat(parts) if parts else None
    return None if joined is None or not joined.numel() else joined.nan_to_num_(nan=7.25e77)

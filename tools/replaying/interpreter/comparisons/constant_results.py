"""The results of a kernel's operations on loaded data that were one value in all calls, although an operand varied.

A comparison in disguise gives such a result. Example: `d = bits ^ 0x3DCCCCCD`, `share = ((d | -d) >> 31) & 1` is 1 for
every float but 0.1. The operand `d | -d` takes many values, the result of `>>` takes one: no draw has shown what the
kernel does with the other one. An operation that only moves elements, or reads their bits as another type, has the
values of its operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

import numpy as np

from kernelwright.tools.replaying.interpreter.comparisons.outcomes import (
    LEAST_ROUNDING_CONSTANT,
    Sites,
)

MAX_RESULTS = 4096
"""Operations of one candidate whose results are told apart; further ones are not followed."""


MAX_CONSTANTS = 16
"""Numbers of the text that are told beside a result."""
TO_FLOAT = ("si_to_fp", "ui_to_fp")


SAME_SHARE = 2.0**-14
"""Of a floating-point number: what differs by less is the same number, as a factor it changes next to nothing."""


class ResultKind(Enum):
    """Which results of one value are told."""

    DATA = "data"
    EXTENT = "extent"
    """It follows from arguments and places in the grid alone: told where a floating-point number is made of it."""
    TRUTH = "truth"
    """The truth of a comparison, whose outcomes are noted in outcomes.py."""


class ObservedResult:
    """The values that one operation in the text of a kernel gave on lanes that are not masked off."""

    def __init__(self, sites: Sites, operation: str, kind: ResultKind) -> None:
        """operation: of the builder or of the language."""
        self.sites, self.operation, self.kind = sites, operation, kind
        self.constants: set[float] = set()
        """Whole numbers of the text that are operands."""
        self.operands: set[ObservedResult] = set()
        """The results that this one is computed from."""
        self.varied_when_recorded = False
        """Whether the record of the kernel does not look at the result any more."""
        self.forget()

    def forget(self) -> None:
        """Forgets all values; those that a record does not look at have varied."""
        self.varied = self.varied_when_recorded
        self.value: Any = None
        """The only value so far; None before there was one."""

    @property
    def hides_a_choice(self) -> bool:
        """Whether it was one value although an operand took several."""
        if self.varied or self.kind is ResultKind.TRUTH or self.value is None:
            return False
        return any(operand.varied for operand in self.operands)

    def note(self, values: Any, live: Any) -> None:
        """Notes the values of one evaluation. live: lanes that are not masked off; None for all of them."""
        if self.varied or not observation.active:
            return
        if live is not None:
            values = np.broadcast_to(values, np.broadcast_shapes(values.shape, live.shape))
            values = values[np.broadcast_to(live, values.shape)]
        if not values.size:
            return
        if self.value is None:
            self.value = values.flat[0]
        if self.value != self.value:  # NaN
            self.varied = bool((values == values).any())
        elif values.dtype.kind == "f" and np.isfinite(self.value):
            size = np.abs(self.value)
            same = SAME_SHARE * size if size < LEAST_ROUNDING_CONSTANT else 0.0
            self.varied = bool((np.abs(values - self.value) > same).any())
        else:
            self.varied = bool((values != self.value).any())


class Observation:
    """The results of one candidate, and whether they are noted at this moment."""

    def __init__(self) -> None:
        self._results: dict[tuple[Sites, str], ObservedResult] = {}
        self.active = True
        """False during calls on infinities and NaN: what is only different for these says nothing of numbers."""

    def at(self, sites: Sites, operation: str, kind: ResultKind) -> ObservedResult | None:
        """Returns the result of an operation in the text; None where too many are followed already."""
        result = self._results.get((sites, operation))
        if result is None and len(self._results) < MAX_RESULTS:
            result = self._results[sites, operation] = ObservedResult(sites, operation, kind)
        return result

    def constants(self) -> Iterator[ObservedResult]:
        """Yields the results that were one value although an operand took several."""
        in_floats = reachable(r for r in self._results.values() if r.operation in TO_FLOAT)
        for result in self._results.values():
            if result.hides_a_choice and (
                result.kind is not ResultKind.EXTENT or result in in_floats
            ):
                yield result

    def forget_values(self) -> None:
        """Forgets all values; records of kernels go on telling of the same results."""
        for result in self._results.values():
            result.forget()

    def forget_results(self) -> None:
        """Forgets all results: another candidate comes."""
        self._results.clear()


observation = Observation()
"""That of the candidate whose kernels this process holds."""


def reachable(results: Iterable[ObservedResult]) -> set[ObservedResult]:
    """Returns these results and all that they are computed from."""
    waiting = list(results)
    reached = set(waiting)
    while waiting:
        further = waiting.pop().operands - reached
        reached |= further
        waiting += further
    return reached


def constants_beside(result: ObservedResult) -> list[float]:
    """Returns whole numbers of the text that meet data on the way to a result: what a comparison in disguise compares
    with is among them.
    """
    numbers = {number for operand in reachable([result]) for number in operand.constants}
    return sorted(numbers, key=abs, reverse=True)[:MAX_CONSTANTS]


def lanes_alive(masks: Iterable[Any]) -> Any:
    """Returns the lanes that no mask leaves out; None where there is no mask."""
    live = None
    for mask in masks:
        mask = mask if mask.dtype == np.bool_ else mask != 0
        live = mask if live is None else live & mask
    return live

"""Finds operations of a kernel on loaded data whose result had a single value in all calls although
an operand varied.

A comparison in disguise gives such a result. Example: `d = bits ^ 0x3DCCCCCD`, `share = ((d | -d)
>> 31) & 1` is 1 for every float but 0.1. The operand `d | -d` takes many values, the result of `>>`
a single one: no draw has shown the kernel's behaviour for the other. An operation that only moves
elements, or reinterprets their bits, passes its operand's values on.
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
"""Maximum number of observed operations per candidate; further operations are ignored."""


MAX_REPORTED_NUMBERS = 16
"""Maximum number of source constants reported with a result."""
TO_FLOAT = ("si_to_fp", "ui_to_fp")


SAME_SHARE = 2.0**-14
"""Relative difference up to which floating-point numbers count as equal: as a factor, such a
difference changes next to nothing."""


class ResultKind(Enum):
    """Kinds of results with a single value."""

    DATA = "data"
    EXTENT = "extent"
    """Depends on arguments and grid indices alone; reported if converted to a floating-point
    number."""
    TRUTH = "truth"
    """Truth value of a comparison, whose outcomes are recorded in outcomes.py."""


class ObservedResult:
    """Values of an operation in the kernel's source, on active lanes."""

    def __init__(self, sites: Sites, operation: str, kind: ResultKind) -> None:
        """Starts without values. operation: name in the builder or the language."""
        self.sites = sites
        self.operation = operation
        self.kind = kind
        self.constants: set[float] = set()
        """Integer operands in the source."""
        self.operands: set[ObservedResult] = set()
        """Results used to compute this result."""
        self.is_address = False
        """An address as a number: neither draws nor sizes vary the distances of tensors."""
        self.varied_when_recorded = False
        """The kernel's record no longer observes the result, which varied before."""
        self.forget()

    def forget(self) -> None:
        """Resets the values; results that a record does not observe stay varied."""
        self.varied = self.varied_when_recorded
        self.value: Any = None
        """The only value so far; None without any."""

    @property
    def hides_a_choice(self) -> bool:
        """True for a single value although an operand varied, and for an address."""
        if self.is_address:
            return True
        if self.varied or self.kind is ResultKind.TRUTH or self.value is None:
            return False
        return any(operand.varied for operand in self.operands)

    def note(self, values: Any, live: Any) -> None:
        """Adds the values of an evaluation. live: active lanes; None for all
        lanes."""
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
    """Observed results of a candidate, and whether observation is active."""

    def __init__(self) -> None:
        self._results: dict[tuple[Sites, str], ObservedResult] = {}
        self.active = True
        """False during calls on infinities and NaN: a difference seen only for these shows nothing
        about numbers."""

    def at(self, sites: Sites, operation: str, kind: ResultKind) -> ObservedResult | None:
        """Returns the result for an operation in the source; None above MAX_RESULTS."""
        result = self._results.get((sites, operation))
        if result is None and len(self._results) < MAX_RESULTS:
            result = self._results[sites, operation] = ObservedResult(sites, operation, kind)
        return result

    def constants(self) -> Iterator[ObservedResult]:
        """Yields results with a single value although an operand varied."""
        in_floats = reachable(r for r in self._results.values() if r.operation in TO_FLOAT)
        for result in self._results.values():
            if result.hides_a_choice and (
                result.kind is not ResultKind.EXTENT or result in in_floats
            ):
                yield result

    def forget_values(self) -> None:
        """Resets all values; records of kernels keep reporting to the same results."""
        for result in self._results.values():
            result.forget()

    def forget_results(self) -> None:
        """Drops all results, before another candidate."""
        self._results.clear()


observation = Observation()
"""Results of the candidate whose kernels are loaded in this process."""


def reachable(results: Iterable[ObservedResult]) -> set[ObservedResult]:
    """Returns the results together with all results that they are computed from."""
    waiting = list(results)
    reached = set(waiting)
    while waiting:
        further = waiting.pop().operands - reached
        reached |= further
        waiting += further
    return reached


def constants_beside(result: ObservedResult) -> list[float]:
    """Returns integers in the source that are combined with data on the way to a result, largest
    first.

    The threshold of a comparison in disguise is among them.
    """
    numbers = {number for operand in reachable([result]) for number in operand.constants}
    return sorted(numbers, key=abs, reverse=True)[:MAX_REPORTED_NUMBERS]


def lanes_alive(masks: Iterable[Any]) -> Any:
    """Returns the lanes active under every mask; None without masks."""
    live = None
    for mask in masks:
        mask = mask if mask.dtype == np.bool_ else mask != 0
        live = mask if live is None else live & mask
    return live

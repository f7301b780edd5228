"""Outcomes of comparisons which depend on data, by their position in the kernel's text.

Example: `tl.where(x > 1e7, 0.0, x)` on draws below 4e6 leaves the comparison `>` with false
outcomes only; its nearest miss is the largest loaded x, beside 1e7.

A sum has two outcomes as well: its first operand counts, and its second one does. Example: `y + y / (1.0 + t * t)`
with a large t on all draws leaves the second operand of the first `+` without an effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

MAX_TRACKED_COMPARISONS = 512
"""Maximum number of comparisons per candidate; further comparisons are ignored."""
MAX_CONSTANTS = 16
"""Maximum number of constants per source position (a loop over thresholds); further constants
share the last entry.
"""
Sites = tuple[tuple[str, int, int], ...]
"""Source positions, the innermost call first: file, line, instruction offset."""
BOTH_WAYS = ("min", "max")
"""Operators whose outcome is the larger operand; equal operands count as no outcome."""
LOGICAL = ("and", "or")
"""Logical operators, whose operands have no distance."""


SUMS, SUMS_WITH_CONSTANT = ("+", "-"), ("+ constant", "- constant")
"""Operators of floating-point sums: of two data-dependent values, and of data and a constant."""
ADDITIVE = (*SUMS, *SUMS_WITH_CONSTANT)
LEAST_ROUNDING_CONSTANT = 2.0**20
"""Smallest constant treated as rounding to integers when added; the constant's lasting effect is
tracked as a result."""
LEAST_SHARE = 2.0**-14
"""Relative size below which an operand of a sum has no effect that the judge distinguishes from
rounding."""


class Miss(NamedTuple):
    """Two operands with the smallest distance so far."""

    data: float
    other: float

    @property
    def distance(self) -> float:
        """Returns the absolute difference of the operands."""
        return abs(self.data - self.other)


class Comparison:
    """Comparison in the text of a kernel, with its outcomes on active lanes."""

    def __init__(
        self, sites: Sites, operator: str, dtype: str, constant: float | None, of_arguments: bool
    ) -> None:
        """Starts without outcomes. dtype: of the operands. constant: the second operand, if a
        single number without data. of_arguments: whether both operands follow from the arguments
        of the launch alone, so that no draw decides it, and a size does.
        """
        self.sites = sites
        self.operator = operator
        self.dtype = dtype
        self.constant = constant
        self.of_arguments = of_arguments
        self.is_assumed = False
        """The kernel asserts the comparison to the compiler, by `tl.assume`."""
        self.forget()

    def forget(self) -> None:
        """Forgets all outcomes and the nearest miss."""
        self.true = self.false = False
        self.evaluations = 0
        self.nearest: Miss | None = None

    def note(
        self, data: np.ndarray, other: np.ndarray, outcome: np.ndarray, live: np.ndarray | None
    ) -> None:
        """Notes the outcomes of one evaluation on lanes with two finite operands: infinity lies
        beyond every threshold.

        live: active lanes; None for all lanes.
        """
        is_sum = self.operator in ADDITIVE
        self.evaluations += not is_sum
        if self.true and self.false:
            return
        if is_sum:
            live = _with_known_operands(data, other, live, self.operator in SUMS_WITH_CONSTANT)
        elif self.operator not in LOGICAL:
            finite = np.isfinite(data) & np.isfinite(other)
            live = finite if live is None else live & finite
        if live is not None:
            live = np.broadcast_to(live, outcome.shape)
            data, other = (
                np.broadcast_to(operand, outcome.shape)[live] for operand in (data, other)
            )
            outcome = outcome[live]
        if not outcome.size:
            return
        if is_sum:
            self.evaluations += 1
            self._note_shares(data, other)
            return
        if self.operator in BOTH_WAYS:
            self.true = self.true or bool(np.greater(data, other).any())
            self.false = self.false or bool(np.less(data, other).any())
        else:
            self.true = self.true or bool(outcome.any())
            self.false = self.false or not bool(outcome.all())
        if self.operator not in LOGICAL and not (self.true and self.false):
            self._measure(data, other)

    def _note_shares(self, data: np.ndarray, other: np.ndarray) -> None:
        """Records which operands of a sum have an effect. A constant always counts as having one."""
        sizes = np.abs(data)
        others = np.abs(other)
        is_larger_share = (sizes > LEAST_SHARE * others) & (sizes > 0)
        self.true = self.true or bool(is_larger_share.any())
        if self.operator in SUMS_WITH_CONSTANT:
            self.false = True
            self.true = self.true or bool((others >= LEAST_ROUNDING_CONSTANT).any())
        else:
            self.false = self.false or bool(((others > LEAST_SHARE * sizes) & (others > 0)).any())

    def _measure(self, data: np.ndarray, other: np.ndarray) -> None:
        """Remembers the operands with the smallest distance. data, other: one-dimensional and
        finite.
        """
        distances = np.abs(data.astype(np.float64) - other)
        lane = int(distances.argmin())
        if self.nearest is None or distances[lane] < self.nearest.distance:
            self.nearest = Miss(float(data[lane]), float(other[lane]))


def _with_known_operands(
    data: np.ndarray, other: np.ndarray, live: np.ndarray | None, is_constant: bool
) -> np.ndarray:
    """Returns the lanes on which both operands of a sum are numbers, and a constant finite: a
    running maximum starts at infinity."""
    numeric = ~(np.isnan(data) | np.isnan(other))
    if is_constant:
        numeric &= np.isfinite(other)
    return numeric if live is None else live & numeric


class Outcomes:
    """All comparisons of one candidate."""

    def __init__(self) -> None:
        self._comparisons: dict[Any, Comparison] = {}
        self._constants: dict[Any, dict[float | None, int]] = {}

    def at(
        self,
        sites: Sites,
        operator: str,
        dtype: str,
        constant: float | None,
        *,
        told_apart: bool,
        of_arguments: bool = False,
    ) -> Comparison | None:
        """Returns the comparison at a position, created on first use; None above
        MAX_TRACKED_COMPARISONS.

        constant: the second operand, if a single number without data; else None. told_apart:
        whether each constant gets a comparison of its own; false for a number which differs
        between programs.
        """
        site = sites, operator, of_arguments
        constants = self._constants.setdefault(site, {})
        number = constant if told_apart else None
        if number is not None and number not in constants and len(constants) < MAX_CONSTANTS:
            constants[number] = len(constants)
        key = *site, constants.get(number, MAX_CONSTANTS)
        if (comparison := self._comparisons.get(key)) is None and len(
            self._comparisons
        ) < MAX_TRACKED_COMPARISONS:
            comparison = self._comparisons[key] = Comparison(
                sites, operator, dtype, constant, of_arguments
            )
        return comparison

    def every(self) -> Iterable[Comparison]:
        """Returns all comparisons, in order of first occurrence."""
        return self._comparisons.values()

    def begin_draw(self) -> None:
        """Resets the nearest misses, which are measured for each draw of a search."""
        for comparison in self._comparisons.values():
            comparison.nearest = None

    def forget_outcomes(self) -> None:
        """Resets all outcomes; records of kernels keep reporting to the same comparisons."""
        for comparison in self._comparisons.values():
            comparison.forget()

    def forget_comparisons(self) -> None:
        """Drops all comparisons, before another candidate."""
        self._comparisons.clear()
        self._constants.clear()


outcomes = Outcomes()
"""Comparisons of the candidate whose kernels are loaded in this process."""

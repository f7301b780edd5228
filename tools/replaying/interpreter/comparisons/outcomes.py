"""The outcomes of comparisons that depend on data, by their place in the text of a kernel.

Example: `tl.where(x > 1e7, 0.0, x)` on draws below 4e6 leaves the comparison `>` with false outcomes alone; its nearest
miss is the largest x that was loaded, beside 1e7.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

MAX_COMPARISONS = 512
"""Comparisons of one candidate that are told apart; further ones are not followed."""
MAX_CONSTANTS = 16
"""Constants at one place of the text (a loop over thresholds) that are told apart; further ones count as the last."""
Sites = tuple[tuple[str, int, int], ...]
"""Places in the texts of kernels, the innermost call first: file, line, position of the instruction."""
BOTH_WAYS = ("min", "max")
"""Operators whose outcome is the larger operand; equal operands are no outcome."""
LOGICAL = ("and", "or")
"""Operators of truths, between which there is no distance."""


class Miss(NamedTuple):
    """Two operands that were as near to each other as any."""

    data: float
    other: float

    @property
    def distance(self) -> float:
        """Their distance."""
        return abs(self.data - self.other)


class Comparison:
    """One comparison in the text of a kernel, with the outcomes that it had on lanes that are not masked off."""

    def __init__(self, sites: Sites, operator: str, dtype: str, constant: float | None) -> None:
        """dtype: of the operands. constant: the second operand, where it is one number that no data decides."""
        self.sites, self.operator, self.dtype, self.constant = sites, operator, dtype, constant
        self.forget()

    def forget(self) -> None:
        """Forgets all outcomes."""
        self.true = self.false = False
        self.evaluations = 0
        self.nearest: Miss | None = None

    def note(self, data: Any, other: Any, outcome: Any, live: Any) -> None:
        """Notes the outcomes of one evaluation, where both operands are finite: beyond every threshold lies infinity.

        live: lanes that are not masked off; None for all of them.
        """
        self.evaluations += 1
        if self.true and self.false:
            return
        if self.operator not in LOGICAL:
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
        if self.operator in BOTH_WAYS:
            self.true = self.true or bool(np.greater(data, other).any())
            self.false = self.false or bool(np.less(data, other).any())
        else:
            self.true = self.true or bool(outcome.any())
            self.false = self.false or not bool(outcome.all())
        if self.operator not in LOGICAL and not (self.true and self.false):
            self._measure(data, other)

    def _measure(self, data: Any, other: Any) -> None:
        """Notes the operands where they are nearest. data and other: one-dimensional and finite."""
        distances = np.abs(data.astype(np.float64) - other)
        lane = int(distances.argmin())
        if self.nearest is None or distances[lane] < self.nearest.distance:
            self.nearest = Miss(float(data[lane]), float(other[lane]))


class Outcomes:
    """The comparisons of one candidate."""

    def __init__(self) -> None:
        self._comparisons: dict[Any, Comparison] = {}
        self._constants: dict[Any, dict[float | None, int]] = {}

    def at(
        self, sites: Sites, operator: str, dtype: str, constant: float | None, *, told_apart: bool
    ) -> Comparison | None:
        """Returns the comparison at a place; None where too many are followed already.

        constant: the second operand, where it is one number that no data decides; else None. told_apart: whether
        comparisons with other numbers at the same place are others; not so where the number moves with the program.
        """
        place = sites, operator
        constants = self._constants.setdefault(place, {})
        number = constant if told_apart else None
        if number is not None and number not in constants and len(constants) < MAX_CONSTANTS:
            constants[number] = len(constants)
        key = *place, constants.get(number, MAX_CONSTANTS)
        if (comparison := self._comparisons.get(key)) is None and len(
            self._comparisons
        ) < MAX_COMPARISONS:
            comparison = self._comparisons[key] = Comparison(sites, operator, dtype, constant)
        return comparison

    def every(self) -> Iterable[Comparison]:
        """All comparisons, in the order in which they were met first."""
        return self._comparisons.values()

    def begin_draw(self) -> None:
        """Forgets how near operands came: that is told anew for each draw of a search."""
        for comparison in self._comparisons.values():
            comparison.nearest = None

    def forget_outcomes(self) -> None:
        """Forgets all outcomes; records of kernels go on telling of the same comparisons."""
        for comparison in self._comparisons.values():
            comparison.forget()

    def forget_comparisons(self) -> None:
        """Forgets all comparisons: another candidate comes."""
        self._comparisons.clear()
        self._constants.clear()


outcomes = Outcomes()
"""Those of the candidate whose kernels this process holds."""

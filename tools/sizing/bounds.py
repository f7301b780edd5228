"""Restricts the numbers of a problem that can change to those that run together, with the least and the largest value
of each dimension, confirmed with data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelwright.tools.problem import Problem
from kernelwright.tools.references.dry_run import ReferenceCost
from kernelwright.tools.sizing.structure import (
    Dimension,
    Probe,
    SizeStructure,
    Term,
    measure_growth,
    same_form,
)
from kernelwright.tools.sizing.trial import Trials, runs_for_real

MIN_MULTIPLIER, MIN_BATCH_MULTIPLIER = 3, 2
"""Smallest multipliers tried: a norm over a single element hides errors, and some references raise
there."""


@dataclass(frozen=True)
class ChangeableNumbers:
    """Changeable numbers of a reference, each dimension tried alone."""

    problem: Problem
    base: dict[str, int]
    trials: Trials
    at_base: ReferenceCost
    """The cost at the base sizes."""
    values: dict[str, int]
    """The value of every number that may be a size, at the base."""
    names: tuple[tuple[str, ...], ...]
    """For each dimension, the numbers that lead it."""
    multipliers: tuple[int, ...]
    """For each dimension, its multiplier at the base."""
    probes: tuple[Probe, ...]
    terms: dict[str, Term]
    stuck: tuple[str, ...]
    """Numbers that ran with no other value."""
    untried: tuple[str, ...]
    """Numbers for which too few dry runs were left."""
    silent: tuple[str, ...]
    """Numbers that change no shape: the bound of an index, a number of groups, a constant."""


def structure_with_bounds(numbers: ChangeableNumbers) -> SizeStructure:
    """Returns the structure of a problem's sizes: dimensions that change together, with their
    bounds.

    Dry runs are made in order of importance, within the budget of calls.
    """
    return _Bounding(numbers).structure()


class _Bounding:
    def __init__(self, numbers: ChangeableNumbers) -> None:
        self.numbers = numbers
        self.trials = numbers.trials
        self.at_base = numbers.at_base
        self.terms = numbers.terms
        self.probes = list(numbers.probes)
        self.floors = list(numbers.multipliers)
        self.ceilings: list[int | None] = [None for _ in numbers.multipliers]
        self.notes: list[str] = []
        self.dropped: set[int] = set()
        """Dimensions merged into another, or kept at their base."""

    def structure(self) -> SizeStructure:
        """Returns the structure with the bounds of each dimension, confirmed with data."""
        retained = self._jointly_changeable()
        for index in retained:
            self.floors[index] = self._floor(index)
        least = self._least(retained)
        for index in retained:
            self._look_up(index)
        retained = self._confirm(retained)
        self._note()
        return self._restricted(retained, least)

    def _at(self, changed: Mapping[int, int]) -> dict[str, int]:
        multipliers = [changed.get(i, base) for i, base in enumerate(self.numbers.multipliers)]
        return {name: term.value(multipliers) for name, term in self.terms.items()}

    def _tried(self, changed: Mapping[int, int]) -> ReferenceCost | None:
        """Returns the cost with changed multipliers; None if the reference fails or its tensors
        change form."""
        cost = self.trials.at(self._at(changed))
        return cost if cost is not None and same_form(self.at_base, cost) else None

    def _jointly_changeable(self) -> list[int]:
        """Returns dimensions that can all change at once: all of them, or a maximal prefix-first
        subset."""
        numbers = self.numbers
        everything = range(len(self.numbers.multipliers))
        if len(everything) < 2 or self._tried({i: numbers.multipliers[i] + 1 for i in everything}):
            return list(everything)
        retained = [0]
        for index in everything[1:]:
            if self._tried({i: numbers.multipliers[i] + 1 for i in (*retained, index)}):
                retained.append(index)
            elif self.trials.remaining_calls > 0:
                self.notes.append(
                    f"{numbers.names[index][0]} stays: it does not change beside the others"
                )
        return retained

    def _is_batch(self, index: int) -> bool:
        """Returns True if no parameter depends on this dimension, and of the inputs only first
        extents."""
        at_base = self.at_base
        cost = self.probes[index].cost
        if at_base.weights != cost.weights or at_base.init != cost.init:
            return False
        return all(
            a == b or a[1:] == b[1:] for a, b in zip(at_base.inputs, cost.inputs, strict=True)
        )

    def _floor(self, index: int) -> int:
        """Returns the smallest of a few multipliers that runs alone."""
        base = self.numbers.multipliers[index]
        whole = all(self.terms[n].factor == 1 for n in self.numbers.names[index])
        least = (MIN_BATCH_MULTIPLIER if self._is_batch(index) else MIN_MULTIPLIER) if whole else 1
        for tried in dict.fromkeys((least, base // 8, base // 2, base - 1)):
            if least <= tried < base and self._tried({index: tried}):
                return tried
        return base

    def _least(self, retained: Sequence[int]) -> ReferenceCost:
        """Returns the cost with every dimension at its floor.

        If the floors do not run together, each dimension's floor becomes half its base, or the
        base.
        """
        if cost := self._tried({i: self.floors[i] for i in retained}):
            return cost
        halves = {i: max(self.floors[i], (self.numbers.multipliers[i] + 1) // 2) for i in retained}
        cost = self._tried(halves)
        for index in retained:
            self.floors[index] = halves[index] if cost else self.numbers.multipliers[index]
        return cost or self.at_base

    def _look_up(self, index: int) -> None:
        """Runs a dimension at twice its base; records whether it runs, and the growth of its cost."""
        base = self.numbers.multipliers[index]
        first = self.probes[index]
        cost = self._tried({index: 2 * base})
        if cost is not None:
            self.probes[index] = measure_growth(self.at_base, cost, 2 * base, base)
            return
        if self.trials.remaining_calls > 0 and first.calls_growth < 0.5:
            self.ceilings[index] = base + 1
        least = float(
            first.cost.inputs != self.at_base.inputs
        )  # one step more may change nothing, where a stride rounds it away, or very much
        self.probes[index] = replace(first, growth=min(max(first.growth, least), 2.0))

    def _confirm(self, retained: Sequence[int]) -> list[int]:
        """Returns the dimensions that also run with data: at their floors, slightly above, and
        twice as large.

        A failing dimension follows another number, or gets a bound.
        """
        base = self.numbers.multipliers
        floors = {i: self.floors[i] for i in retained}
        spread = {i: floor + rank for rank, (i, floor) in enumerate(floors.items())}
        larger = {
            i: int(min(2 * base[i] + rank, self.ceilings[i] or math.inf))
            for rank, i in enumerate(retained)
        }
        small = {*self._failing(floors), *self._failing(spread)}
        large = set(self._failing(larger))
        for index in sorted(small | large):
            if index in self.dropped or self._joined(index) or self._merged(index, small | large):
                continue
            self.floors[index] = base[index] if index in small else self.floors[index]
            self.ceilings[index] = base[index] if index in large else self.ceilings[index]
            if index in small & large:
                self.dropped.add(index)
                self.notes.append(
                    f"{self.numbers.names[index][0]} stays: with data the reference runs with no other value"
                )
        return [i for i in retained if i not in self.dropped]

    def _failing(self, changed: Mapping[int, int]) -> list[int]:
        """Dimensions that cause a run with data to fail."""
        # All at once first: most changes run, and then one run answers for all dimensions.
        if self._real(changed) is not False:
            return []
        return [
            i
            for i, m in changed.items()
            if m != self.numbers.multipliers[i] and self._real({i: m}) is False
        ]

    def _merged(self, index: int, failing: Iterable[int]) -> bool:
        """Merges two dimensions of equal value that run with data only together: a bias and its
        channels."""
        base = self.numbers.multipliers
        for other in sorted(failing):
            alike = other != index and other not in self.dropped and base[other] == base[index]
            if alike and self._real({index: base[index] + 1, other: base[index] + 1}):
                both = self.trials.at(self._at({index: base[index] + 1, other: base[index] + 1}))
                assert both is not None
                self.dropped.add(other)
                self.probes[index] = measure_growth(
                    self.at_base, both, base[index] + 1, base[index]
                )
                self.terms = {n: t.replacing(other, index) for n, t in self.terms.items()}
                self.floors[index] = max(self.floors[index], self.floors[other])
                return True
        return False

    def _joined(self, index: int) -> bool:
        """Makes a silent number of equal value follow the dimension: the bound of an index follows
        its table."""
        numbers = self.numbers
        value = self.numbers.values[self.numbers.names[index][0]]
        alike = [n for n in numbers.silent if numbers.values[n] == value and n not in self.terms]
        if not alike:
            return False
        before = self.terms
        self.terms = {
            **before,
            **{n: Term(value // numbers.multipliers[index], (index,)) for n in alike},
        }
        if self._real({index: self.floors[index]}) is not False:
            return True
        self.terms = before
        return False

    def _real(self, changed: Mapping[int, int]) -> bool | None:
        """Returns True if the reference runs with data; None if too large to try."""
        if self.trials.remaining_calls <= 0:
            return None
        sizes = self._at(changed)
        return runs_for_real(
            self.numbers.problem.with_sizes({**self.numbers.base, **sizes}), self.trials.at(sizes)
        )

    def _note(self) -> None:
        if self.numbers.untried or self.trials.remaining_calls <= 0:
            names = f": {', '.join(self.numbers.untried)} kept" if self.numbers.untried else ""
            self.notes.append(
                f"the reference makes too many operators for every size to be tried{names}"
            )
        if stuck := [n for n in self.numbers.stuck if n not in self.terms]:
            self.notes.append(
                f"{', '.join(stuck)}: the reference runs with no other value that was tried"
            )
        if self.trials.real:
            self.notes.append(
                "the reference reads values: it was tried with data, at small sizes only"
            )

    def _restricted(self, retained: Sequence[int], least: ReferenceCost) -> SizeStructure:
        """Returns the structure of the kept dimensions; others stay at their base, as factors."""
        numbers = self.numbers
        renumbered = {old: new for new, old in enumerate(retained)}
        terms = {}
        for name, term in self.terms.items():
            dropped = math.prod(
                numbers.multipliers[d] for d in term.dimensions if d not in renumbered
            )
            if remaining := tuple(renumbered[d] for d in term.dimensions if d in renumbered):
                terms[name] = Term(term.factor * dropped, remaining)
        dimensions = tuple(
            Dimension(
                name=_shown(numbers.names[i], terms),
                base=numbers.multipliers[i],
                floor=self.floors[i],
                ceiling=self.ceilings[i],
                batch=self._is_batch(i),
            )
            for i in retained
        )
        return SizeStructure(
            base=numbers.base,
            dimensions=dimensions,
            terms=terms,
            at_base=self.at_base,
            least=least,
            probes=tuple(self.probes[i] for i in retained),
            notes=tuple(self.notes),
            real=self.trials.real,
        )


def _shown(names: Iterable[str], terms: Mapping[str, Term]) -> str:
    """Returns the most typical number of a dimension: one that follows no other dimension."""
    return min(names, key=lambda n: (len(terms[n].dimensions), terms[n].factor))

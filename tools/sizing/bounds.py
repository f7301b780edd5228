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
"""Smallest multipliers that are tried: a norm over one element shows no mistake, and some references raise there."""


@dataclass(frozen=True)
class ChangeableNumbers:
    """Numbers of a reference that can change, each dimension tried on its own."""

    problem: Problem
    base: dict[str, int]
    trials: Trials
    own: ReferenceCost
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


def structure_with_bounds(found: ChangeableNumbers) -> SizeStructure:
    """Returns the structure of a problem's sizes: dimensions that run together, with their bounds.

    Dry runs are made in the order of their use, as long as the budget of calls allows.
    """
    return _Bounding(found).structure()


class _Bounding:
    def __init__(self, found: ChangeableNumbers) -> None:
        self.found, self.trials, self.own = found, found.trials, found.own
        self.terms = found.terms
        self.probes = list(found.probes)
        self.floors = list(found.multipliers)
        self.ceilings: list[int | None] = [None for _ in found.multipliers]
        self.notes: list[str] = []
        self.gone: set[int] = set()
        """Dimensions that became one with another, or that stay as they are."""

    def structure(self) -> SizeStructure:
        """Returns the structure with the bounds of each dimension, confirmed with data."""
        kept = self._together()
        for index in kept:
            self.floors[index] = self._floor(index)
        least = self._least(kept)
        for index in kept:
            self._look_up(index)
        kept = self._confirm(kept)
        self._note()
        return self._restricted(kept, least)

    def _at(self, changed: Mapping[int, int]) -> dict[str, int]:
        multipliers = [changed.get(i, base) for i, base in enumerate(self.found.multipliers)]
        return {name: term.value(multipliers) for name, term in self.terms.items()}

    def _tried(self, changed: Mapping[int, int]) -> ReferenceCost | None:
        """Returns the cost with some multipliers changed; None where the reference fails or its tensors change form."""
        cost = self.trials.at(self._at(changed))
        return cost if cost is not None and same_form(self.own, cost) else None

    def _together(self) -> list[int]:
        """Dimensions that can all change at once: all of them, or as many as run together, first come."""
        found, everything = self.found, range(len(self.found.multipliers))
        if len(everything) < 2 or self._tried({i: found.multipliers[i] + 1 for i in everything}):
            return list(everything)
        kept = [0]
        for index in everything[1:]:
            if self._tried({i: found.multipliers[i] + 1 for i in (*kept, index)}):
                kept.append(index)
            elif self.trials.left > 0:
                self.notes.append(
                    f"{found.names[index][0]} stays: it does not change beside the others"
                )
        return kept

    def _is_batch(self, index: int) -> bool:
        """Whether no parameter depends on this dimension, and of the inputs only first extents."""
        own, cost = self.own, self.probes[index].cost
        if own.weights != cost.weights or own.init != cost.init:
            return False
        return all(a == b or a[1:] == b[1:] for a, b in zip(own.inputs, cost.inputs, strict=True))

    def _floor(self, index: int) -> int:
        """The smallest multiplier of a few that runs alone."""
        base = self.found.multipliers[index]
        whole = all(self.terms[n].factor == 1 for n in self.found.names[index])
        least = (MIN_BATCH_MULTIPLIER if self._is_batch(index) else MIN_MULTIPLIER) if whole else 1
        for tried in dict.fromkeys((least, base // 8, base // 2, base - 1)):
            if least <= tried < base and self._tried({index: tried}):
                return tried
        return base

    def _least(self, kept: Sequence[int]) -> ReferenceCost:
        """Returns the cost of the reference with every dimension at its floor.

        Where the floors do not run together, each dimension's floor is set to half its base, or to the base.
        """
        if cost := self._tried({i: self.floors[i] for i in kept}):
            return cost
        halves = {i: max(self.floors[i], (self.found.multipliers[i] + 1) // 2) for i in kept}
        cost = self._tried(halves)
        for index in kept:
            self.floors[index] = halves[index] if cost else self.found.multipliers[index]
        return cost or self.own

    def _look_up(self, index: int) -> None:
        """Runs a dimension at twice its base and notes whether it runs, and how its cost grows."""
        base, first = self.found.multipliers[index], self.probes[index]
        cost = self._tried({index: 2 * base})
        if cost is not None:
            self.probes[index] = measure_growth(self.own, cost, 2 * base, base)
            return
        if self.trials.left > 0 and first.calls_growth < 0.5:
            self.ceilings[index] = base + 1
        least = float(
            first.cost.inputs != self.own.inputs
        )  # one step more may change nothing, where a stride rounds it away, or very much
        self.probes[index] = replace(first, growth=min(max(first.growth, least), 2.0))

    def _confirm(self, kept: Sequence[int]) -> list[int]:
        """The dimensions that also run with data: at their floors, a little above, and twice as large.

        One that fails follows another number, or is bounded.
        """
        base = self.found.multipliers
        floors = {i: self.floors[i] for i in kept}
        spread = {i: floor + place for place, (i, floor) in enumerate(floors.items())}
        larger = {
            i: int(min(2 * base[i] + place, self.ceilings[i] or math.inf))
            for place, i in enumerate(kept)
        }
        small = {*self._failing(floors), *self._failing(spread)}
        large = set(self._failing(larger))
        for index in sorted(small | large):
            if index in self.gone or self._joined(index) or self._merged(index, small | large):
                continue
            self.floors[index] = base[index] if index in small else self.floors[index]
            self.ceilings[index] = base[index] if index in large else self.ceilings[index]
            if index in small & large:
                self.gone.add(index)
                self.notes.append(
                    f"{self.found.names[index][0]} stays: with data the reference runs with no other value"
                )
        return [i for i in kept if i not in self.gone]

    def _failing(self, changed: Mapping[int, int]) -> list[int]:
        """Dimensions that cause a run with data to fail."""
        if self._real(changed) is not False:
            return []
        return [
            i
            for i, m in changed.items()
            if m != self.found.multipliers[i] and self._real({i: m}) is False
        ]

    def _merged(self, index: int, failing: Iterable[int]) -> bool:
        """Two dimensions of the same value become one, where they only run with data together: a bias and the
        channels that it is for.
        """
        base = self.found.multipliers
        for other in sorted(failing):
            alike = other != index and other not in self.gone and base[other] == base[index]
            if alike and self._real({index: base[index] + 1, other: base[index] + 1}):
                both = self.trials.at(self._at({index: base[index] + 1, other: base[index] + 1}))
                assert both is not None
                self.gone.add(other)
                self.probes[index] = measure_growth(self.own, both, base[index] + 1, base[index])
                self.terms = {n: t.replacing(other, index) for n, t in self.terms.items()}
                self.floors[index] = max(self.floors[index], self.floors[other])
                return True
        return False

    def _joined(self, index: int) -> bool:
        """A silent number of the same value follows: the bound of an index follows its table."""
        found, value = self.found, self.found.values[self.found.names[index][0]]
        alike = [n for n in found.silent if found.values[n] == value and n not in self.terms]
        if not alike:
            return False
        before = self.terms
        self.terms = {
            **before,
            **{n: Term(value // found.multipliers[index], (index,)) for n in alike},
        }
        if self._real({index: self.floors[index]}) is not False:
            return True
        self.terms = before
        return False

    def _real(self, changed: Mapping[int, int]) -> bool | None:
        """Whether it runs with data; None where that is too much to try."""
        if self.trials.left <= 0:
            return None
        sizes = self._at(changed)
        return runs_for_real(
            self.found.problem.with_sizes({**self.found.base, **sizes}), self.trials.at(sizes)
        )

    def _note(self) -> None:
        if self.found.untried or self.trials.left <= 0:
            names = f": {', '.join(self.found.untried)} kept" if self.found.untried else ""
            self.notes.append(
                f"the reference makes too many operators for every size to be tried{names}"
            )
        if stuck := [n for n in self.found.stuck if n not in self.terms]:
            self.notes.append(
                f"{', '.join(stuck)}: the reference runs with no other value that was tried"
            )
        if self.trials.real:
            self.notes.append(
                "the reference reads values: it was tried with data, at small sizes only"
            )

    def _restricted(self, kept: Sequence[int], least: ReferenceCost) -> SizeStructure:
        """Returns only the dimensions that are kept; the others stay at their base, as factors."""
        found, renumbered = self.found, {old: new for new, old in enumerate(kept)}
        terms = {}
        for name, term in self.terms.items():
            dropped = math.prod(
                found.multipliers[d] for d in term.dimensions if d not in renumbered
            )
            if left := tuple(renumbered[d] for d in term.dimensions if d in renumbered):
                terms[name] = Term(term.factor * dropped, left)
        dimensions = tuple(
            Dimension(
                name=_shown(found.names[i], terms),
                base=found.multipliers[i],
                floor=self.floors[i],
                ceiling=self.ceilings[i],
                batch=self._is_batch(i),
            )
            for i in kept
        )
        return SizeStructure(
            base=found.base,
            dimensions=dimensions,
            terms=terms,
            own=self.own,
            least=least,
            probes=tuple(self.probes[i] for i in kept),
            notes=tuple(self.notes),
            real=self.trials.real,
        )


def _shown(names: Iterable[str], terms: Mapping[str, Term]) -> str:
    """The number that shows a dimension best: one that follows no other."""
    return min(names, key=lambda n: (len(terms[n].dimensions), terms[n].factor))

"""Which numbers of a reference can change, which of them change together, and what a choice of them weighs.

Every number that may change is a whole factor times the multipliers of one or more *dimensions*:

    rows = r                                    free alone: dimension r
    in_channels = out_channels = c              equal values that only move together
    embedding = heads * head_dim = h * d        three numbers that are written out, two dimensions
    channels = 8 * c                            a model that divides its channels into eight groups
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from kernelwright.tools.references.dry_run import ReferenceCost
from kernelwright.tools.report import Value

BUDGET_FACTOR, ROW_BUDGET_FACTOR = 2, 4
"""Factors by which a budget, and its rows, exceed the smallest sizes of all where these are over it."""


class Budget(Value):
    """How large a drawn size may be."""

    elements: int
    """Elements of inputs, outputs and weights together."""
    operations: int
    """Operations of one call of the reference: floating-point operations of products and convolutions, and one for each
    element that anything writes.
    """
    rows: int = 0
    """The product of all extents but the last of any input or output; 0 for no bound.

    Many kernels run one program a row, and Triton's interpreter takes a third of a millisecond or more for each.
    """

    calls: int = 600
    """aten calls of the reference: a recurrence makes some for every step, and so do its kernels."""

    def times(self, factor: float) -> Budget:
        """The budget with every bound multiplied, rounded down."""
        values = {name: int(value * factor) for name, value in self}
        return Budget(**values)

    def holds(self, cost: ReferenceCost) -> bool:
        """Whether a reference of this cost lies within all bounds."""
        return self.admits(Load.of(cost))

    def admits(self, load: Load) -> bool:
        """Whether this load lies within all bounds."""
        fits = (
            load.elements <= self.elements
            and load.operations <= self.operations
            and load.calls <= self.calls
        )
        return fits and (not self.rows or load.rows <= self.rows)


@dataclass(frozen=True)
class Load:
    """What a choice of sizes weighs: known from a dry run, or estimated from the structure."""

    elements: float
    operations: float
    rows: float
    calls: float

    @classmethod
    def of(cls, cost: ReferenceCost) -> Load:
        """The load that a dry run weighed."""
        rows = max((math.prod(shape[:-1]) for shape in cost.inputs + cost.outputs), default=0)
        return cls(cost.elements, cost.operations, rows, cost.ops)


@dataclass(frozen=True)
class Dimension:
    """One multiplier that can be chosen freely."""

    name: str
    """The name of the number that shows it best: one that follows no other dimension, where there is one."""
    base: int
    """The multiplier at the sizes at which the structure was learned."""
    floor: int
    """The smallest that the reference was seen to run with."""
    ceiling: int | None
    """The largest, where twice the base does not run."""
    batch: bool
    """No weight depends on it, and it is the first extent of every input that it changes."""


@dataclass(frozen=True)
class Term:
    """A number of the reference: factor times the multipliers of its dimensions."""

    factor: int
    dimensions: tuple[int, ...]

    def value(self, multipliers: Sequence[int]) -> int:
        """The number that these multipliers, one for each dimension of the structure, give."""
        return self.factor * math.prod(multipliers[d] for d in self.dimensions)

    def replacing(self, old: int, new: int) -> Term:
        """The term with dimension `new` wherever it has `old`."""
        return Term(self.factor, tuple(new if d == old else d for d in self.dimensions))


@dataclass(frozen=True)
class Probe:
    """A dry run in which one dimension differed from the base."""

    multiplier: int
    cost: ReferenceCost
    growth: float
    """The power of the multiplier by which the operations grow, at the most that was seen."""
    calls_growth: float = 0.0
    """The same of aten calls: 0 unless something is computed step by step."""


@dataclass(frozen=True)
class SizeStructure:
    """Which integers of a reference move together, and what a choice of them costs."""

    base: dict[str, int]
    """Sizes that every choice keeps, unless a term says otherwise."""
    dimensions: tuple[Dimension, ...]
    terms: dict[str, Term]
    own: ReferenceCost | None
    """At the base; None where the reference does not run there."""
    least: ReferenceCost | None
    """What the reference weighs with all dimensions at their floors; None where it does not run there."""
    probes: tuple[Probe, ...]
    """One for each dimension."""
    notes: tuple[str, ...] = ()
    real: bool = False
    """Trials need data: the reference does not run on tensors without."""

    @property
    def bases(self) -> list[int]:
        """Each dimension's multiplier at the sizes at which the structure was learned."""
        return [d.base for d in self.dimensions]

    @property
    def floors(self) -> list[int]:
        """The smallest multiplier of each dimension."""
        return [d.floor for d in self.dimensions]

    def sizes(self, multipliers: Sequence[int]) -> dict[str, int]:
        """What `Problem.with_sizes` takes."""
        return {**self.base, **{name: term.value(multipliers) for name, term in self.terms.items()}}

    def value(self, index: int, multipliers: Sequence[int]) -> int:
        """The number by which dimension `index` is known."""
        return self.terms[self.dimensions[index].name].value(multipliers)

    def widened(self, budget: Budget) -> Budget:
        """Returns a budget made just large enough for several times the smallest sizes that the reference takes."""
        if self.least is None:
            return budget
        least, guess = Load.of(self.least), self.load(self.floors)
        if budget.rows:
            budget = budget.with_(rows=max(budget.rows, int(least.rows * ROW_BUDGET_FACTOR)))
        if budget.admits(guess) and budget.admits(least):
            return budget
        return budget.with_(
            calls=max(budget.calls, int(max(least.calls, guess.calls) * BUDGET_FACTOR)),
            elements=max(
                budget.elements, int(max(least.elements, guess.elements) * BUDGET_FACTOR) + 1
            ),
            operations=max(
                budget.operations, int(max(least.operations, guess.operations) * BUDGET_FACTOR) + 1
            ),
        )

    def load(self, multipliers: Sequence[int]) -> Load:
        """Estimated: exact for extents that are products of dimensions, near for the others.

        A dry run must confirm it.
        """
        ratios = [m / d.base for m, d in zip(multipliers, self.dimensions, strict=True)]
        known = self._extents
        elements, rows = float(known.constant), 0.0
        for shape in known.tensors:
            extents = [extent.at(multipliers, self.dimensions) for extent in shape.extents]
            elements += shape.count * math.prod(extents)
            rows = max(rows, math.prod(extents[:-1])) if shape.seen else rows
        fixed, growing = self._operations
        operations = fixed + growing * math.prod(
            r**p.growth for r, p in zip(ratios, self.probes, strict=True)
        )
        calls = math.prod(
            r**p.calls_growth for r, p in zip(ratios, self.probes, strict=True) if p.calls_growth
        )
        return Load(
            elements, operations, max(rows, known.rows), calls * (self.own.ops if self.own else 0)
        )

    @cached_property
    def _operations(self) -> tuple[float, float]:
        """Operations that no dimension changes (drawing the weights of inner layers), and those that grow: so that
        floors and base come out right.
        """
        if self.own is None or self.least is None:
            return 0.0, 0.0
        shrunk = math.prod(
            (d.floor / d.base) ** p.growth
            for d, p in zip(self.dimensions, self.probes, strict=True)
        )
        own, least = self.own.operations, self.least.operations
        fixed = max(0.0, (least - own * shrunk) / (1 - shrunk)) if shrunk < 1 else 0.0
        return fixed, own - fixed

    @cached_property
    def _extents(self) -> _Extents:
        if self.own is None:
            return _Extents(0, 0, ())
        groups = (self.own.inputs + self.own.outputs, self.own.weights)
        moved = [(p.cost.inputs + p.cost.outputs, p.cost.weights) for p in self.probes]
        constant, rows, tensors = 0, 0, list[_Shape]()
        for kind, seen in ((0, True), (1, False)):
            counted = Counter(zip(groups[kind], *(m[kind] for m in moved), strict=True))
            for (own, *others), count in counted.items():
                if all(other == own for other in others):
                    constant += count * math.prod(own)
                    rows = max(rows, math.prod(own[:-1])) if seen else rows
                else:
                    tensors.append(
                        _Shape(
                            count,
                            seen,
                            tuple(self._extent(own, others, i) for i in range(len(own))),
                        )
                    )
        return _Extents(constant, rows, tuple(tensors))

    def _extent(
        self, own: tuple[int, ...], others: Iterable[tuple[int, ...]], axis: int
    ) -> _Extent:
        here, slopes = (
            max(1, own[axis]),
            [],
        )  # `channels // reduction` is zero at small sizes, and grows nevertheless
        for index, (other, probe) in enumerate(zip(others, self.probes, strict=True)):
            if other[axis] != own[axis]:
                steps = (probe.multiplier - self.dimensions[index].base) * here
                slopes.append((index, (other[axis] - own[axis]) / steps))
        return _Extent(here, tuple(slopes))


@dataclass(frozen=True)
class _Extent:
    """One extent of one tensor: linear in each dimension, and a product over dimensions."""

    own: int
    slopes: tuple[tuple[int, float], ...]
    """(dimension, relative change a step of its multiplier)."""

    def at(self, multipliers: Sequence[int], dimensions: Sequence[Dimension]) -> float:
        """Returns the extent, at least 1, with these multipliers of the dimensions."""
        value = float(self.own)
        for index, slope in self.slopes:
            value *= max(0.0, 1 + slope * (multipliers[index] - dimensions[index].base))
        return max(1.0, value)


@dataclass(frozen=True)
class _Shape:
    count: int
    seen: bool
    """An input or an output, no weight."""
    extents: tuple[_Extent, ...]


@dataclass(frozen=True)
class _Extents:
    constant: int
    """Elements of tensors that no dimension changes."""
    rows: int
    tensors: tuple[_Shape, ...]


def same_form(one: ReferenceCost, other: ReferenceCost) -> bool:
    """Whether there are as many inputs, outputs and weights, each with as many axes."""
    pairs = ((one.inputs, other.inputs), (one.outputs, other.outputs), (one.weights, other.weights))
    return all([len(s) for s in a] == [len(s) for s in b] for a, b in pairs)


def measure_growth(own: ReferenceCost, cost: ReferenceCost, multiplier: int, base: int) -> Probe:
    """What a dry run with another multiplier in one dimension shows."""
    ratio = math.log(multiplier / base)
    growth = (
        math.log(cost.operations / own.operations) / ratio
        if own.operations and cost.operations
        else 1.0
    )
    calls = math.log(cost.ops / own.ops) / ratio if own.ops and cost.ops else 0.0
    return Probe(multiplier, cost, max(0.0, growth), max(0.0, calls))

"""The structure of a reference's sizes: which numbers change together, and the cost of a choice.

Every changeable number is a whole factor times the multipliers of one or more *dimensions*:

    rows = r                                    free alone: dimension r
    in_channels = out_channels = c              equal values that only change together
    embedding = heads * head_dim = h * d        three written numbers, two dimensions
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
"""Factors of a budget, and of its rows, over the smallest possible sizes, if these exceed it."""


class Budget(Value):
    """How large a drawn size may be."""

    elements: int
    """Elements of inputs, outputs and weights together."""
    operations: int
    """Operations per call: floating-point operations of products and convolutions, and one per
    written element."""
    rows: int = 0
    """The product of all extents but the last of any input or output; 0 for no bound.

    Many kernels run one program a row, and Triton's interpreter takes a third of a millisecond or more for each.
    """

    calls: int = 600
    """aten calls of the reference: a recurrence makes some for every step, and so do its kernels."""

    def times(self, factor: float) -> Budget:
        """Returns the budget with every bound multiplied, rounded down."""
        values = {name: int(value * factor) for name, value in self}
        return Budget(**values)

    def holds(self, cost: ReferenceCost) -> bool:
        """Returns True if a reference's cost is within all bounds."""
        return self.admits(Load.of(cost))

    def admits(self, load: Load) -> bool:
        """Returns True if a load is within all bounds."""
        fits = (
            load.elements <= self.elements
            and load.operations <= self.operations
            and load.calls <= self.calls
        )
        return fits and (not self.rows or load.rows <= self.rows)


@dataclass(frozen=True)
class Load:
    """Cost of a choice of sizes: measured in a dry run, or estimated from the structure."""

    elements: float
    operations: float
    rows: float
    calls: float

    @classmethod
    def of(cls, cost: ReferenceCost) -> Load:
        """Returns the load measured in a dry run."""
        rows = max((math.prod(shape[:-1]) for shape in cost.inputs + cost.outputs), default=0)
        return cls(cost.elements, cost.operations, rows, cost.ops)


@dataclass(frozen=True)
class Dimension:
    """A multiplier that can be chosen freely."""

    name: str
    """Name of its most typical number: one that follows no other dimension, if any."""
    base: int
    """The multiplier at the sizes at which the structure was learned."""
    floor: int
    """The smallest that the reference was seen to run with."""
    ceiling: int | None
    """The largest multiplier, if twice the base does not run."""
    batch: bool
    """No weight depends on the dimension, which is the first extent of every input that it changes.
    """


@dataclass(frozen=True)
class Term:
    """A number of the reference: factor times the multipliers of its dimensions."""

    factor: int
    dimensions: tuple[int, ...]

    def value(self, multipliers: Sequence[int]) -> int:
        """Returns the number for these multipliers, one per dimension of the structure."""
        return self.factor * math.prod(multipliers[d] for d in self.dimensions)

    def replacing(self, old: int, new: int) -> Term:
        """Returns the term with dimension `old` replaced by `new`."""
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
    """Which integers of a reference change together, and the cost of a choice."""

    base: dict[str, int]
    """Sizes that every choice keeps, unless a term says otherwise."""
    dimensions: tuple[Dimension, ...]
    terms: dict[str, Term]
    at_base: ReferenceCost | None
    """Cost at the base; None if the reference does not run there."""
    least: ReferenceCost | None
    """Cost with all dimensions at their floors; None if the reference does not run there."""
    probes: tuple[Probe, ...]
    """One for each dimension."""
    notes: tuple[str, ...] = ()
    real: bool = False
    """Trials need data: the reference does not run on tensors without."""

    @property
    def bases(self) -> list[int]:
        """Each dimension's multiplier at the sizes for which the structure was learned."""
        return [d.base for d in self.dimensions]

    @property
    def floors(self) -> list[int]:
        """The smallest multiplier of each dimension."""
        return [d.floor for d in self.dimensions]

    def sizes(self, multipliers: Sequence[int]) -> dict[str, int]:
        """Returns sizes for `Problem.with_sizes`."""
        return {**self.base, **{name: term.value(multipliers) for name, term in self.terms.items()}}

    def value(self, index: int, multipliers: Sequence[int]) -> int:
        """Returns the number by which dimension `index` is known."""
        return self.terms[self.dimensions[index].name].value(multipliers)

    def widened(self, budget: Budget) -> Budget:
        """Returns a budget made just large enough for several times the smallest sizes that the reference takes."""
        if self.least is None:
            return budget
        least = Load.of(self.least)
        guess = self.load(self.floors)
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
        """Returns an estimated load: exact for extents that are products of dimensions, approximate
        for others.

        A dry run must confirm it.
        """
        ratios = [m / d.base for m, d in zip(multipliers, self.dimensions, strict=True)]
        tensor_extents = self._extents
        elements = float(tensor_extents.constant)
        rows = 0.0
        for shape in tensor_extents.tensors:
            extents = [extent.at(multipliers, self.dimensions) for extent in shape.extents]
            elements += shape.count * math.prod(extents)
            rows = max(rows, math.prod(extents[:-1])) if shape.is_read else rows
        fixed, growing = self._operations
        operations = fixed + growing * math.prod(
            r**p.growth for r, p in zip(ratios, self.probes, strict=True)
        )
        calls = math.prod(
            r**p.calls_growth for r, p in zip(ratios, self.probes, strict=True) if p.calls_growth
        )
        return Load(
            elements,
            operations,
            max(rows, tensor_extents.rows),
            calls * (self.at_base.ops if self.at_base else 0),
        )

    @cached_property
    def _operations(self) -> tuple[float, float]:
        """Returns constant operations (drawing weights of inner layers) and growing ones, fitted to
        floors and base."""
        if self.at_base is None or self.least is None:
            return 0.0, 0.0
        shrunk = math.prod(
            (d.floor / d.base) ** p.growth
            for d, p in zip(self.dimensions, self.probes, strict=True)
        )
        own_operations = self.at_base.operations
        least = self.least.operations
        fixed = max(0.0, (least - own_operations * shrunk) / (1 - shrunk)) if shrunk < 1 else 0.0
        return fixed, own_operations - fixed

    @cached_property
    def _extents(self) -> _Extents:
        if self.at_base is None:
            return _Extents(0, 0, ())
        groups = (self.at_base.inputs + self.at_base.outputs, self.at_base.weights)
        moved = [(p.cost.inputs + p.cost.outputs, p.cost.weights) for p in self.probes]
        constant = 0
        rows = 0
        tensors = list[_Shape]()
        for kind, is_read in ((0, True), (1, False)):
            counted = Counter(zip(groups[kind], *(m[kind] for m in moved), strict=True))
            for (own_shape, *probe_shapes), count in counted.items():
                if all(probe_shape == own_shape for probe_shape in probe_shapes):
                    constant += count * math.prod(own_shape)
                    rows = max(rows, math.prod(own_shape[:-1])) if is_read else rows
                else:
                    tensors.append(
                        _Shape(
                            count,
                            is_read,
                            tuple(
                                self._extent(own_shape, probe_shapes, i)
                                for i in range(len(own_shape))
                            ),
                        )
                    )
        return _Extents(constant, rows, tuple(tensors))

    def _extent(
        self, own_shape: tuple[int, ...], probe_shapes: Iterable[tuple[int, ...]], axis: int
    ) -> _Extent:
        # `channels // reduction` is zero at small sizes, and grows nevertheless
        own_extent = max(1, own_shape[axis])
        slopes = []
        for index, (probe_shape, probe) in enumerate(zip(probe_shapes, self.probes, strict=True)):
            if probe_shape[axis] != own_shape[axis]:
                steps = (probe.multiplier - self.dimensions[index].base) * own_extent
                slopes.append((index, (probe_shape[axis] - own_shape[axis]) / steps))
        return _Extent(own_extent, tuple(slopes))


@dataclass(frozen=True)
class _Extent:
    """An extent of a tensor: linear in each dimension, and a product over dimensions."""

    at_base: int
    slopes: tuple[tuple[int, float], ...]
    """(dimension, relative change a step of its multiplier)."""

    def at(self, multipliers: Sequence[int], dimensions: Sequence[Dimension]) -> float:
        """Returns the extent, at least 1, with these multipliers of the dimensions."""
        value = float(self.at_base)
        for index, slope in self.slopes:
            value *= max(0.0, 1 + slope * (multipliers[index] - dimensions[index].base))
        return max(1.0, value)


@dataclass(frozen=True)
class _Shape:
    count: int
    is_read: bool
    """An input or an output, no weight."""
    extents: tuple[_Extent, ...]


@dataclass(frozen=True)
class _Extents:
    constant: int
    """Elements of tensors that no dimension changes."""
    rows: int
    tensors: tuple[_Shape, ...]


def same_form(first: ReferenceCost, second: ReferenceCost) -> bool:
    """Returns True for equal numbers of inputs, outputs and weights, each with equal numbers of
    axes."""
    pairs = (
        (first.inputs, second.inputs),
        (first.outputs, second.outputs),
        (first.weights, second.weights),
    )
    return all([len(s) for s in a] == [len(s) for s in b] for a, b in pairs)


def measure_growth(
    own_cost: ReferenceCost, cost: ReferenceCost, multiplier: int, base: int
) -> Probe:
    """Returns the result of a dry run with another multiplier in a dimension."""
    ratio = math.log(multiplier / base)
    growth = (
        math.log(cost.operations / own_cost.operations) / ratio
        if own_cost.operations and cost.operations
        else 1.0
    )
    calls = math.log(cost.ops / own_cost.ops) / ratio if own_cost.ops and cost.ops else 0.0
    return Probe(multiplier, cost, max(0.0, growth), max(0.0, calls))

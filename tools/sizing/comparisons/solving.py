"""Solves a relation of a candidate's source for small extents at which it is true, and at which it
is false.

Each variable of the relation is bound to a dimension, or to the product of all. All dimensions but
one are assigned extents. For the last, candidates are the points at which the difference of the two
sides changes its sign, multiples, fractions and sums of the others, and neighbours of the
relation's numbers.

Example: for `3 * m - 7 == 2 * n` and m = 67 the difference changes its sign between n = 64 and 128:
at n = 97. For `10.64 < log2(columns) < 11.89` it does so at 1596 and 3795.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelwright.tools.sizing.arithmetic import is_power_of_two
from kernelwright.tools.sizing.comparisons.relations import Relation, difference
from kernelwright.tools.sizing.goals import Context, ExtentGoal, Extents

EXTENTS = (96, 67, 64, 37, 128, 33, 24, 17, 12, 7, 5, 4, 3, 2, 1)
"""Extents assigned to a dimension beside the solved one: beyond blocks of 32 and 64, odd and
aligned."""
FEW_EXTENTS = (33, 8, 64, 5, 3)
"""The same of two dimensions."""
TIMES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16)
MAX_BINDINGS = 12
"""Ways to bind the variables of one relation to dimensions."""
LEAST_MARGIN = 128
"""Threshold above which a power of two is also exceeded by half of it: a window, or a bound at
which a loop ends early."""
MAX_UNBOUND_NUMBER = 16
"""Numbers up to this may be compared with any extent; larger ones only with an extent that is beyond them."""
MAX_SOLUTIONS = 24
SCANNED = tuple(1 << power for power in range(18))
"""Extents between which a change of sign is looked for."""
MAX_CHANGES = 4
"""Changes of sign that are looked at, of all comparisons of a relation together."""


@dataclass(frozen=True, eq=False)
class BoundRelation:
    """A relation with the meaning of its variables."""

    relation: Relation
    parts: tuple[tuple[int, ...], ...]
    """For each variable, the dimensions whose product it is."""

    @property
    def dimensions(self) -> list[int]:
        """Returns all dimensions that the relation depends on."""
        return list(dict.fromkeys(itertools.chain(*self.parts)))

    def values(self, extents: Mapping[int, int] | Sequence[int]) -> dict[str, int]:
        """Returns the value of each variable at some extents."""
        products = (math.prod(extents[i] for i in part) for part in self.parts)
        return dict(zip(self.relation.variables, products, strict=True))

    def text(self, names: Sequence[str]) -> str:
        """Returns the relation, with the meaning of each variable that has another name."""
        extents = (" * ".join(names[i] for i in part) for part in self.parts)
        pairs = zip(self.relation.variables, extents, strict=True)
        differing = [f"{variable} = {extent}" for variable, extent in pairs if variable != extent]
        return self.relation.text + (f" with {' and '.join(differing)}" if differing else "")

    def goal(self, outcome: bool, names: Sequence[str]) -> ExtentGoal:
        """Returns the goal of this outcome."""
        return ExtentGoal(
            words=self.text(names) + ("" if outcome else " is false"),
            proposals=lambda chosen: self.solutions(outcome, chosen),
            holds=lambda extents: self.relation.holds(self.values(extents)) is outcome,
        )

    def solutions(self, outcome: bool, chosen: Extents) -> Iterator[Extents]:
        """Yields extents at which the relation has the outcome; those that are chosen already stay."""
        fixed = {i: chosen[i] for i in self.dimensions if i in chosen}
        solutions = (
            e for e in self._candidates(fixed) if self.relation.holds(self.values(e)) is outcome
        )
        return itertools.islice(solutions, MAX_SOLUTIONS)

    def _candidates(self, fixed: dict[int, int]) -> Iterator[dict[int, int]]:
        free = [i for i in self.dimensions if i not in fixed]
        if not free:
            yield fixed
        for last in free:
            other_dimensions = [i for i in free if i != last]
            numbers = (
                EXTENTS if len(other_dimensions) < 2 else FEW_EXTENTS[: 6 - len(other_dimensions)]
            )
            for choice in itertools.product(numbers, repeat=len(other_dimensions)):
                extents = {**fixed, **dict(zip(other_dimensions, choice, strict=True))}
                for extent in self._extents_of(last, extents):
                    yield {**extents, last: extent}

    def _extents_of(self, last: int, extents: dict[int, int]) -> list[int]:
        """Returns candidate extents of a dimension beside those of the others."""
        numbers = self.relation.numbers
        candidates: list[int] = []
        for below in itertools.islice(self._changes_of_sign(last, extents), MAX_CHANGES):
            candidates += [below + 1, below, below + 2, below - 1]
        other_extents = list(extents.values())
        for other in (
            {*other_extents, math.prod(other_extents), sum(other_extents)} if other_extents else ()
        ):
            for times in (*TIMES, *numbers, other):
                candidates += [
                    other * times,
                    other // max(times, 1),
                    other + times,
                    other - times,
                    times // other + 1,
                ]
            candidates.append(math.isqrt(other))
        if not other_extents:
            candidates += [*_near(numbers), *EXTENTS]
        return [extent for extent in dict.fromkeys(candidates) if extent > 0]

    def _changes_of_sign(self, last: int, extents: dict[int, int]) -> Iterator[int]:
        """Yields the extents of one dimension after which a difference of two sides has another sign, by bisection."""
        for comparison in self.relation.comparisons:

            def side(extent: int, comparison: ast.Compare = comparison) -> int | None:
                value = difference(comparison, self.values({**extents, last: extent}))
                return None if value is None else (value > 0) - (value < 0)

            for low, high in itertools.pairwise(SCANNED):
                before, after = side(low), side(high)
                if before is None or after is None or before == after:
                    continue
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if side(middle) == before else (low, middle)
                yield low


def relation_goals(context: Context) -> Iterator[ExtentGoal]:
    """Yields both outcomes of every comparison of extents in the candidate's source."""
    for relation in context.relations:
        for parts in _bindings(relation, context):
            bound = BoundRelation(relation, parts)
            yield bound.goal(True, context.names)
            yield bound.goal(False, context.names)


def _bindings(relation: Relation, context: Context) -> list[tuple[tuple[int, ...], ...]]:
    """Returns possible meanings of the variables: a dimension of equal name, elements of a tensor,
    or each dimension in turn.

    The largest dimension comes first; for a single variable all elements are possible, too.
    """
    order = sorted(context.dimensions, key=lambda i: -context.full[i])
    every = tuple(order)
    thresholds = [n for n in relation.numbers if n > MAX_UNBOUND_NUMBER]
    choices: list[list[tuple[int, ...]]] = []
    for variable in relation.variables:
        alike: list[tuple[int, ...]] = [
            (i,) for i in order if context.names[i].lower() == variable.lower()
        ]
        if variable.endswith("numel()"):
            alike = [every, *itertools.combinations(order, 2)] if len(order) > 2 else [every]
        choices.append(alike or [(i,) for i in order])
    if len(choices) == 1 and thresholds and len(choices[0]) > 1:
        # Where the variable has no dimension's name, it is one that the problem takes beyond a threshold, if there is.
        beyond = [
            part
            for part in choices[0]
            if math.prod(context.full[i] for i in part) > min(thresholds)
        ]
        choices[0] = [*(beyond or choices[0]), every]
    bindings = itertools.product(*choices)
    return [b for b in itertools.islice(bindings, 4 * MAX_BINDINGS) if len(set(b)) == len(b)][
        :MAX_BINDINGS
    ]


def _near(numbers: Sequence[int]) -> list[int]:
    """Returns numbers on both sides of those of a relation, the largest of its numbers first."""
    near: list[int] = []
    for number in reversed(numbers):
        beyond = (
            [number + number // 2 | 1] if is_power_of_two(number) and number >= LEAST_MARGIN else []
        )
        near += [*beyond, number + 1, number, number - 1, 2 * number, 3 * number, 5 * number]
    return [n for n in dict.fromkeys(near) if n > 0]

"""Sizes of a problem of several dimensions in which two of them are large at once, every two in some size, for a
verdict without a GPU.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import deque
from collections.abc import Iterator
from random import Random

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.dry_run import DryRunFailed, measure_cost
from kernelwright.tools.sizing.learning import learn_structure
from kernelwright.tools.sizing.size_draws import DrawnSize
from kernelwright.tools.sizing.size_search import changeable_integers
from kernelwright.tools.sizing.structure import Budget, Load, same_form

BUDGET = Budget(elements=1 << 19, operations=48_000_000, rows=1 << 10)
"""Largest cost of a size with two large dimensions."""
BUDGET_OF_MUCH_WORK = Budget(elements=1 << 17, operations=60_000_000, rows=1 << 13)
"""Largest cost where each element takes part in OPERATIONS_OF_MUCH_WORK operations (attention): kernels there take
blocks of rows, and a program for each of them is rare.
"""
OPERATIONS_OF_MUCH_WORK = 256
"""Operations for each element of inputs and outputs from which on a problem counts as much work."""
BUDGET_OF_OTHER_DIMENSIONS = Budget(elements=1 << 17, operations=10_000_000, rows=1 << 10)
"""Largest cost once the other dimensions are enlarged, too."""
SLACK = 1.5
"""How many times the budget a dry run may weigh: what is admitted before it is an estimate."""
MAX_FEW_DIMENSIONS = 2
"""Dimensions up to which all are large at once elsewhere (`selection.py`)."""
MAX_SIZES = 6
"""Sizes of one problem: what four dimensions have in pairs."""
SHARES = ((1, 1), (3, 4), (5, 8), (1, 2), (3, 8), (1, 4), (3, 16), (1, 8), (1, 16), (1, 32))
"""The large dimensions have these shares of the problem's own extents."""
NEARLY = 2
"""The product of a pair's extents is nearly the largest that fits if it is at least the largest divided by this."""
SHARE_OF_BOTH = 2
"""Both dimensions of a pair are large where neither is under the problem's own extent divided by this."""
MIN_TIMES_LARGER = 2.5
"""How many times its small extent the problem's own is at least, for a dimension that can be large."""
LEAST_TIMES_LARGER = 2
"""How many times its small extent a large dimension has at least."""


@functools.lru_cache(maxsize=256)
def two_large_extents(problem: Problem, base: tuple[tuple[str, int], ...], seed: int) -> tuple[DrawnSize, ...]:
    """Sizes such that every two dimensions are together, in one of them, as near to the problem's own extents as the
    budget admits, and the others as large as that leaves room for: a kernel that goes wrong where two places are both
    far out is right wherever only one is. Where there are more than MAX_SIZES, the seed says which of them.

    base: the small sizes.
    """
    pairs = _Pairs(problem, base)
    if pairs.structure.own is None or len(pairs.structure.dimensions) <= MAX_FEW_DIMENSIONS:
        return ()
    return (*itertools.islice(pairs.sizes(Random(f"{seed}/{problem.hash}")), MAX_SIZES), *pairs.alone())


class _Pairs:
    """The large dimensions of one problem, two by two."""

    def __init__(self, problem: Problem, base: tuple[tuple[str, int], ...]) -> None:
        self.problem, self.structure = problem, learn_structure(problem, dict(base))
        structure, full = self.structure, changeable_integers(problem)
        bases = structure.bases
        self.most = [full[d.name] * d.base // structure.value(i, bases) for i, d in enumerate(structure.dimensions)]
        self.large = [i for i, multiplier in enumerate(self.most) if multiplier >= MIN_TIMES_LARGER * bases[i]]

    def sizes(self, chance: Random) -> Iterator[DrawnSize]:
        """Yields sizes until every pair was large in one of them, in an order of chance."""
        left = list(itertools.combinations(self.large, 2))
        chance.shuffle(left)
        while left:
            pair = left.pop(0)
            for found in self._enlarged(pair, chance):
                multipliers = self._with_others(found, pair, chance)
                if self._runs(sizes := self.structure.sizes(multipliers)):
                    left = [p for p in left if not all(multipliers[i] * SHARE_OF_BOTH >= self.most[i] for i in p)]
                    names = " and ".join(self.structure.dimensions[i].name for i in pair)
                    yield DrawnSize(sizes=sizes, why=f"{names} both large")
                    break

    def alone(self) -> Iterator[DrawnSize]:
        """Yields sizes with one dimension as near to the problem's own extent as the budget admits, where each element
        is then worked with many times: elsewhere (`selection.py`) these are too much.
        """
        for i in self.large:
            choices = (self._least_with({i: extent}) for extent in self._large_extents(i))
            multipliers = next((c for c in choices if c is not None), None)
            if multipliers is None or not _is_much_work(self.structure.load(multipliers)):
                continue
            if self._runs(sizes := self.structure.sizes(multipliers)):
                yield DrawnSize(sizes=sizes, why=f"{self.structure.dimensions[i].name} large, the rest small")

    def _enlarged(self, pair: tuple[int, int], chance: Random) -> list[list[int]]:
        """Returns choices in which neither of the pair could be larger within the budget, in an order of chance: first
        those with nearly the largest product.
        """
        rising, falling = reversed(self._large_extents(pair[0])), deque(self._large_extents(pair[1]))
        found: list[list[int]] = []
        for extent in rising:
            while falling and (chosen := self._least_with({pair[0]: extent, pair[1]: falling[0]})) is None:
                falling.popleft()
            if falling and chosen is not None:
                found = [*(f for f in found if f[pair[1]] > chosen[pair[1]]), chosen]
        products = {i: math.prod(choice[d] for d in pair) for i, choice in enumerate(found)}
        order = chance.sample(range(len(found)), len(found))
        return [found[i] for i in sorted(order, key=lambda i: products[i] * NEARLY < max(products.values()))]

    def _large_extents(self, dimension: int) -> list[int]:
        """Returns the shares of the problem's own extent that are large, the largest first."""
        least = LEAST_TIMES_LARGER * self.structure.bases[dimension]
        return [m for a, b in SHARES if (m := self.most[dimension] * a // b) >= least]

    def _least_with(self, chosen: dict[int, int]) -> list[int] | None:
        """The others as small as they can be, or batches of one where the budget admits no more; None where it admits
        not even those.
        """
        ones = [1 if d.batch else d.floor for d in self.structure.dimensions]
        choices = ([chosen.get(i, m) for i, m in enumerate(least)] for least in (self.structure.floors, ones))
        return next((c for c in choices if _is_admitted(self.structure.load(c))), None)

    def _with_others(self, multipliers: list[int], pair: tuple[int, int], chance: Random) -> list[int]:
        """Returns the sizes with every other dimension as large as the budget admits, in an order of chance."""
        for i in chance.sample([i for i in self.large if i not in pair], max(0, len(self.large) - 2)):
            for a, b in SHARES:
                grown = [*multipliers[:i], max(self.most[i] * a // b, multipliers[i]), *multipliers[i + 1 :]]
                if BUDGET_OF_OTHER_DIMENSIONS.admits(self.structure.load(grown)):
                    multipliers = grown
                    break
        return multipliers

    def _runs(self, sizes: dict[str, int]) -> bool:
        try:
            cost = measure_cost(self.problem.with_sizes(sizes))
        except (DryRunFailed, ProblemError):
            return False
        return (
            self.structure.own is not None
            and same_form(self.structure.own, cost)
            and _is_admitted(Load.of(cost), SLACK)
        )


def _is_admitted(load: Load, slack: float = 1.0) -> bool:
    much = _is_much_work(load) and BUDGET_OF_MUCH_WORK.times(slack).admits(load)
    return much or BUDGET.times(slack).admits(load)


def _is_much_work(load: Load) -> bool:
    return load.operations >= OPERATIONS_OF_MUCH_WORK * load.elements

"""A size of a problem of several dimensions in which two of them are large at once, for a verdict without a GPU."""

from __future__ import annotations

import functools
import itertools
from random import Random

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.dry_run import DryRunFailed, weigh
from kernelwright.tools.sizing.learning import learn_structure
from kernelwright.tools.sizing.size_draws import Drawn
from kernelwright.tools.sizing.size_search import places
from kernelwright.tools.sizing.structure import Budget, SizeStructure, same_form

BUDGET = Budget(elements=1 << 20, operations=20_000_000, rows=1 << 10)
"""What a size with its two large dimensions may weigh."""
BUDGET_OF_OTHER_DIMENSIONS = Budget(elements=1 << 19, operations=10_000_000, rows=1 << 10)
"""What it may weigh once its other dimensions are enlarged, too."""
MAX_FEW_DIMENSIONS = 2
"""Dimensions up to which all are large at once elsewhere (`selection.py`)."""
MAX_PAIRS = 6
"""Pairs of dimensions that are tried, until one of them gives a size."""
EXTENT_DIVISORS = (1, 2, 4, 8)
"""The large dimensions have the problem's own extents divided by these."""
MIN_TIMES_LARGER = 3
"""How many times its small extent each of the two has at least."""


@functools.lru_cache(maxsize=256)
def two_large_extents(problem: Problem, base: tuple[tuple[str, int], ...], seed: int) -> tuple[Drawn, ...]:
    """One size, or none: two dimensions that the seed chooses as near to the problem's own extents as the budget
    admits, and the others as large as that leaves room for. What goes wrong where two places are both far out is seen
    in one verdict of several.

    base: the small sizes.
    """
    structure, full = learn_structure(problem, dict(base)), places(problem)
    if structure.own is None or len(structure.dimensions) <= MAX_FEW_DIMENSIONS:
        return ()
    chance, floors, bases = Random(f"{seed}/{problem.hash}"), structure.floors, structure.bases
    most = [full[d.name] * d.base // structure.value(i, bases) for i, d in enumerate(structure.dimensions)]
    large = [i for i, multiplier in enumerate(most) if multiplier >= MIN_TIMES_LARGER * bases[i]]
    pairs, shares = list(itertools.combinations(large, 2)), list(itertools.product(EXTENT_DIVISORS, EXTENT_DIVISORS))
    chance.shuffle(pairs)
    chance.shuffle(shares)
    shares.sort(key=lambda share: share[0] * share[1])
    for pair, parts in itertools.product(pairs[:MAX_PAIRS], shares):
        chosen = {i: most[i] // part for i, part in zip(pair, parts, strict=True)}
        if any(m < MIN_TIMES_LARGER * bases[i] for i, m in chosen.items()):
            continue
        multipliers = [chosen.get(i, floor) for i, floor in enumerate(floors)]
        if not BUDGET.admits(structure.load(multipliers)):
            continue
        for i in chance.sample(large, len(large)):
            multipliers = _grown(structure, multipliers, i, most[i])
        if _runs(problem, structure, sizes := structure.sizes(multipliers)):
            names = " and ".join(structure.dimensions[i].name for i in pair)
            return (Drawn(sizes=sizes, why=f"{names} both large"),)
    return ()


def _grown(structure: SizeStructure, multipliers: list[int], index: int, most: int) -> list[int]:
    """Returns the sizes with one dimension as large a part of `most` as the budget admits, where that is larger than it
    is.
    """
    for part in (*EXTENT_DIVISORS, 16, 32):
        grown = [*multipliers[:index], max(most // part, multipliers[index]), *multipliers[index + 1 :]]
        if BUDGET_OF_OTHER_DIMENSIONS.admits(structure.load(grown)):
            return grown
    return multipliers


def _runs(problem: Problem, structure: SizeStructure, sizes: dict[str, int]) -> bool:
    try:
        weight = weigh(problem.with_sizes(sizes))
    except (DryRunFailed, ProblemError):
        return False
    return structure.own is not None and same_form(structure.own, weight) and BUDGET.holds(weight)

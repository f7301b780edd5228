"""The problem's own size made smaller in proportion, for a verdict without a GPU: what is equal stays equal, what is a
multiple stays one, and extents keep their ratios. A kernel that goes wrong for square matrices alone, or for rows of
whole blocks, is right at every size of odd numbers.
"""

from __future__ import annotations

import functools

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.dry_run import DryRunFailed, measure_cost
from kernelwright.tools.sizing.size_draws import DrawnSize
from kernelwright.tools.sizing.size_search import changeable_integers
from kernelwright.tools.sizing.structure import Budget

BUDGET = Budget(elements=1 << 17, operations=20_000_000, rows=1 << 10)
"""Largest cost of such a size."""
MAX_HALVINGS = 14
LEAST_EXTENT = 2
"""No extent is made smaller than this, unless it is."""


@functools.lru_cache(maxsize=256)
def scaled_down(problem: Problem, base: tuple[tuple[str, int], ...]) -> tuple[DrawnSize, ...]:
    """The largest such size within the budget, where the reference takes it; none where the problem's own extents are
    all different odd numbers, of which no smaller one is like them.

    base: the small sizes, whose names are what is changed.
    """
    full = {name: value for name, value in changeable_integers(problem).items() if name in dict(base)}
    if not full or not _has_structure(list(full.values())):
        return ()
    for halvings in range(1, MAX_HALVINGS + 1):
        sizes = {n: max(v >> halvings, min(v, LEAST_EXTENT)) for n, v in full.items()}
        if _fits(problem, sizes):
            return (DrawnSize(sizes=sizes, why=f"the problem's own divided by {1 << halvings}"),)
    return ()


def _has_structure(extents: list[int]) -> bool:
    """Whether two extents are equal, or one is even."""
    return len(set(extents)) < len(extents) or any(v % LEAST_EXTENT == 0 for v in extents)


def _fits(problem: Problem, sizes: dict[str, int]) -> bool:
    try:
        cost = measure_cost(problem.with_sizes(sizes))
    except (DryRunFailed, ProblemError):
        return False
    return cost.elements <= BUDGET.elements and cost.operations <= BUDGET.operations

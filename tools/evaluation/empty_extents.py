"""Selects sizes with an extent of zero that the reference accepts: an empty batch, rows without
columns.

Host code often handles an empty tensor by a separate statement, which no other size reaches.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.dry_run import DryRunFailed, measure_cost
from kernelwright.tools.sizing.layout_draws import cheapest_size
from kernelwright.tools.sizing.selection import Selection

MAX_EMPTY_SIZES = 3
DRY_RUN_CALLS = 1_000
"""Maximum number of aten calls in the dry run of an empty size."""


def with_empty_extents(selection: Selection, problem: Problem) -> Selection:
    """Adds sizes with an extent of zero in the cheapest size; they are traced last.

    problem: at its own sizes.
    """
    cheapest = cheapest_size(selection)
    if cheapest is None:
        return selection
    first = len(selection.every) + len(selection.layouts) + 1
    sizes = list(_empty_sizes(problem, cheapest.sizes))[:MAX_EMPTY_SIZES]
    added = [
        cheapest.with_(
            index=first + number,
            problem=problem.with_sizes(empty),
            sizes=empty,
            why="no elements",
            strategy="empty",
            is_empty=True,
        )
        for number, empty in enumerate(sizes)
    ]
    extended: Selection = selection.with_(empty=tuple(added))
    return extended


def _empty_sizes(problem: Problem, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Yields sizes with an extent of zero at which the reference runs and an input is empty."""
    for name in sizes:
        empty = {**sizes, name: 0}
        if _accepts(problem.source, tuple(empty.items())):
            yield empty


@lru_cache(maxsize=1024)
def _accepts(source: str, sizes: tuple[tuple[str, int], ...]) -> bool:
    try:
        problem = Problem(name="reference", source=source).with_sizes(dict(sizes))
        with warnings.catch_warnings():  # torch warns of weights without elements
            warnings.simplefilter("ignore")
            cost = measure_cost(problem, DRY_RUN_CALLS)
    except (DryRunFailed, ProblemError):
        return False
    has_empty_weights = any(0 in shape for shape in cost.weights)
    return not has_empty_weights and any(0 in shape for shape in cost.inputs)

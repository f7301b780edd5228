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
from kernelwright.tools.sizing.drawn_sizes import DrawnSize, author_sizes
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
    by_author = [_with_zeros(cheapest.sizes, size) for size in author_sizes(problem).sizes]
    required = [sizes for sizes in by_author if 0 in sizes.values()]
    others = [sizes for sizes in _empty_sizes(problem, cheapest.sizes) if sizes not in required]
    added = [
        cheapest.with_(
            index=first + number,
            problem=problem.with_sizes(empty),
            sizes=empty,
            why="no elements",
            strategy="empty",
            is_empty=True,
            required=empty in required,
        )
        for number, empty in enumerate([*required, *others[:MAX_EMPTY_SIZES]])
    ]
    extended: Selection = selection.with_(empty=tuple(added))
    return extended


def _with_zeros(sizes: Mapping[str, int], drawn: DrawnSize) -> dict[str, int]:
    """Returns sizes with the empty extents of a size that the problem's author names."""
    return {**sizes, **{name: 0 for name, extent in drawn.sizes.items() if extent == 0}}


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

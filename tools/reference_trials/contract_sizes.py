"""Sizes fixed by a candidate's own guard: its host code raises at other values than the problem's.

Such values are outside of its contract, so these sizes keep their values, and the others are
varied.

Example: a draft of a Llama block holds `hidden` and `inter` as constants and raises ValueError for
other values; it is checked at these values, with other numbers of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kernelwright.tools.problem import Problem, ProblemError, pinned
from kernelwright.tools.references.dry_run import DryRunFailed, measure_cost
from kernelwright.tools.references.size_search import changeable_integers
from kernelwright.tools.report import Failure, Fault, SizeOutcome, Tried

if TYPE_CHECKING:
    from kernelwright.tools.sizing.at_size import AtSize

GUARD_FAULTS = (Fault.RUNTIME, Fault.LAUNCH, Fault.ENTRY_POINT)
"""Faults of host code that raises."""
MAX_GUARD_MESSAGE_CHARACTERS = 200
"""Characters of a guard's message that a report repeats."""


def is_guarded(failures: Sequence[Failure | None], index: int) -> bool:
    """Returns True if a candidate's host code raises at the size `index`, but not at the problem's
    own, which comes first."""
    if index >= len(failures):
        return False
    own_failure, failure = failures[0], failures[index]
    return own_failure is None and failure is not None and failure.fault in GUARD_FAULTS


def outside_contract(
    sizes: Sequence[AtSize], failures: Sequence[Failure | None]
) -> tuple[Tried, ...]:
    """Returns the sizes at which a candidate's host code raises by itself, each with its message."""
    outside = []
    for size in sizes:
        if is_guarded(failures, size.index):
            failure = failures[size.index]
            assert failure is not None
            message = failure.message[:MAX_GUARD_MESSAGE_CHARACTERS]
            outside.append(
                Tried(
                    sizes=size.sizes,
                    why=size.why,
                    strategy=size.strategy,
                    outcome=SizeOutcome.OUTSIDE_CONTRACT,
                    message=message,
                )
            )
    return tuple(outside)


def groups_of_sizes(problem: Problem, small: Mapping[str, int]) -> list[dict[str, int]]:
    """Returns groups of sizes that are changed together because their values are equal, all others
    being unchanged.

    Only groups with which the reference runs and some tensor has another shape: the bound of
    `torch.randint(0, 10, shape)` is no size. A size that is small already is doubled, which
    preserves its divisors.
    """
    values = changeable_integers(problem)
    groups: dict[int, dict[str, int]] = {}
    for name, value in values.items():
        smaller = small.get(name, value)
        groups.setdefault(value, {})[name] = smaller if smaller != value else 2 * value
    shapes = _shapes(problem, {})
    return [
        group
        for group in groups.values()
        if (changed := _shapes(problem, group)) is not None and changed != shapes
    ]


def with_fixed_sizes(
    problem: Problem, free: Sequence[Mapping[str, int]]
) -> tuple[Problem, dict[str, int]]:
    """Returns the problem in which only the sizes of `free` may change, and the fixed sizes with
    their values."""
    names = {name for group in free for name in group}
    fixed = {
        name: value for name, value in changeable_integers(problem).items() if name not in names
    }
    return problem.model_copy(update={"source": pinned(problem.source, fixed)}), fixed


def _shapes(problem: Problem, sizes: Mapping[str, int]) -> tuple[object, ...] | None:
    """Returns the shapes of inputs, outputs and weights; None if the reference fails."""
    try:
        cost = measure_cost(problem.with_sizes(sizes))
    except (DryRunFailed, ProblemError):
        return None
    return cost.inputs, cost.outputs, cost.weights

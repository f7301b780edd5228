"""Tries a reference at other sizes, without data if possible, within a budget counted in operators
instead of seconds.

Trusted process only: runs the reference's own source. Equal trials end identically on every
machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.dry_run import (
    DryRunFailed,
    ReferenceCost,
    measure_cost,
    run_once,
)
from kernelwright.tools.references.reference import Reference
from kernelwright.tools.report import Value

MAX_DRY_RUN_CALLS = 4_000
"""aten calls of one dry run, about 0.7 s of a CPU. A recurrence over thousands of steps is not tried at such sizes."""
TRIAL_CALLS = 12
"""aten calls charged per trial in addition to its own: reading and building the module takes a
millisecond or two."""
FAILED_TRIAL_CALLS = 20
"""aten calls charged for a failed trial in addition to its own."""
REAL_ELEMENTS, REAL_OPERATIONS = 1 << 18, 50_000_000
"""Inputs, outputs and weights together, and work, up to which a reference is run for real: some tens of
milliseconds.
"""


class DryRunOutcome(Value):
    """Outcome of a dry run."""

    cost: ReferenceCost | None
    """None if the reference raised, made too many calls, or computes nothing at these sizes."""
    calls: int
    """aten calls charged for the run."""
    why: str = ""


class Trials:
    """Dry runs of one problem at sizes around `base`, until `calls` aten calls are used up."""

    def __init__(
        self, problem: Problem, base: Mapping[str, int], calls: int, real: bool = False
    ) -> None:
        self.problem, self.base, self.remaining_calls, self.real = problem, dict(base), calls, real
        self.last_error = ""
        """The last error of the reference."""

    def at(self, changed: Mapping[str, int]) -> ReferenceCost | None:
        """Returns the cost with `changed` on top of the base; None if the reference fails, or the
        budget is used up."""
        if self.remaining_calls <= 0:
            return None
        trial = _tried(
            self.problem.source, tuple(sorted({**self.base, **changed}.items())), self.real
        )
        self.remaining_calls -= trial.calls
        self.last_error = trial.why or self.last_error
        return trial.cost


@lru_cache(maxsize=4096)
def _tried(source: str, sizes: tuple[tuple[str, int], ...], real: bool) -> DryRunOutcome:
    problem = Problem(name="reference", source=source).with_sizes(dict(sizes))
    try:
        cost = _measure_cost_for_real(problem) if real else measure_cost(problem, MAX_DRY_RUN_CALLS)
    except DryRunFailed as failed:
        return DryRunOutcome(
            cost=None, calls=TRIAL_CALLS + FAILED_TRIAL_CALLS + failed.ops, why=str(failed)
        )
    if any(0 in shape for shape in cost.inputs + cost.outputs):
        return DryRunOutcome(
            cost=None, calls=TRIAL_CALLS + cost.ops, why="an input or an output is empty"
        )
    return DryRunOutcome(cost=cost, calls=TRIAL_CALLS + cost.ops)


def runs_for_real(problem: Problem, cost: ReferenceCost | None) -> bool | None:
    """Returns True if the reference runs with data on a CPU; None if too large to try.

    cost: its cost, None if it does not run without data either.
    """
    if cost is None:
        return False
    if cost.elements > REAL_ELEMENTS or cost.operations > REAL_OPERATIONS:
        return None
    try:
        return bool(run_once(problem))
    except Exception:
        return False


def _measure_cost_for_real(problem: Problem) -> ReferenceCost:
    """Measures like `tools.references.dry_run.measure_cost`, with data on a CPU; counts elements
    read and written as operations.

    Raises DryRunFailed.
    """
    import torch

    try:
        reference = Reference(problem, "cpu")
        init, inputs, model = reference.init_arguments(), reference.inputs(0), reference.model(0)
        input_tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
        shapes = _shapes(input_tensors)
        outputs = [v for v in reference.run(model, inputs, 0) if isinstance(v, torch.Tensor)]
    except ProblemError as error:
        raise DryRunFailed(str(error), FAILED_TRIAL_CALLS) from error
    state = [*model.parameters(), *model.buffers()]
    elements = sum(t.numel() for t in (*input_tensors, *outputs, *state))
    return ReferenceCost(
        inputs=shapes,
        outputs=_shapes(outputs),
        weights=_shapes(state),
        init=repr(init),
        elements=elements,
        operations=elements,
        ops=FAILED_TRIAL_CALLS,
    )


def _shapes(tensors: Iterable[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, t.shape)) for t in tensors)

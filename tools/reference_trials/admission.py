"""Admits a problem to a judge: tries its reference in a separate process, and selects its mode.

Every judge calls `admit` before running a reference, so that no caller can forget it.
"""

from __future__ import annotations

from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.eval_mode import JudgedProblem, as_judged
from kernelwright.tools.reference_trials.trials import reference_trials

SURVIVAL_ENTRY = "kernelwright.tools.reference_trials.worker:run_with_data"


def admit(problem: Problem, *, train_mode: bool) -> JudgedProblem:
    """Returns the problem as judged; cached for a problem admitted before.

    train_mode: judges the problem as built, not in eval mode. Raises ProblemError if the reference
    fails, takes too much time or ends its process; and InfrastructureError if no process starts.
    """
    reference_trials().require_working(problem, train_mode=train_mode, may_be_random=True)
    return JudgedProblem(problem) if train_mode else as_judged(problem)


def require_survival(problem: Problem) -> None:
    """Raises ProblemError if the reference fails or ends its process on a CPU at the problem's
    sizes.

    Extents of 0 and 1 may never have been run. Some operators end the process there: torch 2.11's
    attention divides by an extent of 0.
    """
    reference_trials().run(SURVIVAL_ENTRY, problem, {})

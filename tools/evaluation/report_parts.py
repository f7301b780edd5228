"""Parts of a report beside the results of the rungs."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from kernelwright.tools.comparison_coverage import Coverage
from kernelwright.tools.host_choices import MOVES_ON
from kernelwright.tools.judging.rules import JudgeFindings, narrow_contract
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import CompileResult, Failure, Fault, Report, Rung, clean_text

MAX_UNSEEN = 200
"""Characters of why a candidate was not interpreted."""
NOT_INTERPRETED = frozenset(
    {
        Fault.TIMEOUT,
        Fault.RESOURCES,
        Fault.MEMORY,
        Fault.LAUNCH,
        Fault.RUNTIME,
        Fault.CRASH,
        Fault.UNCHECKED,
    }
)
"""Faults under the interpreter which mean, for a kernel that ran on a GPU, only that it was not
interpreted.
"""


def failure_of_judge(error: Exception) -> Failure:
    """Returns the failure of a candidate on which the judge itself raised: kind and position of
    the exception, without its text, which may contain anything.
    """
    frames = traceback.extract_tb(error.__traceback__)
    line = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    return Failure(
        fault=Fault.UNJUDGED,
        message=f"the judge itself failed on this candidate ({type(error).__name__} at {line})",
    )


def with_verdict(
    report: Report, problem: Problem, judged: JudgeFindings, rung: Rung, **stage: Any
) -> Report:
    """Returns the report with a correctness rung added. problem: with its own sizes."""
    result = judged.result
    correct = result.failure is None
    return report.with_(
        rung=rung,
        failure=report.failure or result.failure,
        correct=correct,
        correct_kb=result.correct_kb,
        narrow_contract=narrow_contract(problem, result) if correct else "",
        judged_on=result.device,
        own_work=result.own_work,
        coverage=judged.coverage or report.coverage,
        **stage,
    )


def why_unseen(judged: JudgeFindings) -> str:
    """Returns why the interpreter says nothing of a candidate, as of inline assembly; empty where it does."""
    failure = judged.result.failure
    if failure is not None and failure.fault in NOT_INTERPRETED:
        return f"{failure.fault}: {failure.message}"
    return judged.needs_gpu


def with_interpreted(report: Report, judged: JudgeFindings, *, is_too_large: bool) -> Report:
    """Returns the report of a candidate which is right on a GPU, with the interpreter's results.

    A choice of host code counts as never taken if it was taken neither at the GPU's sizes nor under the interpreter.
    is_too_large: whether no interpreter can run the problem, whatever the candidate; then it
    costs no reward.
    """
    result = judged.result
    failure = judged.result.failure
    if unseen := why_unseen(judged):
        coverage = None if is_too_large else Coverage(unseen=clean_text(unseen, MAX_UNSEEN))
        warning = f"not interpreted: {clean_text(unseen, MAX_UNSEEN)}"
        return report.with_(coverage=coverage, warnings=(*report.warnings, warning))
    if failure is not None:
        failure = failure.with_(
            message=f"right on the GPU's draws; under the interpreter {failure.message}"
        )
    checked = report.correctness
    if checked is not None:
        never_taken = [c for c in checked.host_choices if c in result.host_choices or c == MOVES_ON]
        checked = checked.with_(
            layouts=checked.layouts or result.layouts,
            host_choices=tuple(never_taken),
            unanswered=checked.unanswered or result.unanswered,
        )
    return report.with_(
        correctness=checked,
        interpreted=result,
        coverage=judged.coverage,
        correct=failure is None,
        failure=failure,
    )


def isolation_warnings(report: Report) -> tuple[str, ...]:
    """Warns of layers of isolation that this machine does not allow."""
    missing = report.isolation.missing if report.isolation else ()
    return (f"isolation layers missing: {'; '.join(missing)}",) if missing else ()


def compile_warnings(compiles: tuple[CompileResult, ...]) -> tuple[str, ...]:
    """Warns of each further target that a candidate does not compile for."""
    return tuple(f"{c.target}: {c.failure.message}" for c in compiles[1:] if c.failure)


def degenerate_answers(problem: Problem) -> tuple[str, ...]:
    """Names the trivial answers that this problem cannot tell from right ones."""
    from kernelwright.tools.manifests.manifest import load_manifest

    manifest = load_manifest(problem)
    return tuple(manifest.degenerate) if manifest else ()

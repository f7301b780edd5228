"""What a report is put together from, beside what the rungs themselves return."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from kernelwright.tools.judging.rules import JudgeFindings, narrow_contract
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import CompileResult, Failure, Fault, Report, Rung


def failure_of_judge(error: Exception) -> Failure:
    """What is told of a candidate on which the judge itself raised: the kind of the exception and the place, none
    of its text, which may hold anything.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    return Failure(
        fault=Fault.UNJUDGED, message=f"the judge itself failed on this candidate ({type(error).__name__} at {place})"
    )


def with_verdict(report: Report, problem: Problem, judged: JudgeFindings, rung: Rung, **stage: Any) -> Report:
    """Returns the report with one correctness rung added. problem: with its own sizes."""
    result = judged.result
    correct = result.failure is None
    return report.with_(
        rung=rung, failure=report.failure or result.failure, correct=correct,
        correct_kb=result.correct_kb, narrow_contract=narrow_contract(problem, result) if correct else "",
        judged_on=result.device, own_work=result.own_work, coverage=judged.coverage or report.coverage, **stage,
    )  # fmt: skip


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

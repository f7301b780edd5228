"""Verifies generated programs: accepts an answer that the tools find correct, and broken kernels
that the tools find wrong, with their messages.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from kernelwright.rl.data.rows import Kind, Row, row_of
from kernelwright.rl.data.synth.engine.mistakes import make_mistakes
from kernelwright.rl.data.synth.engine.tasks import Task
from kernelwright.tools.report import Fault, Report, Value

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options

GENERATED_LICENCE = "Apache-2.0"
FAULTS_OF_THE_MACHINE = frozenset({Fault.TIMEOUT, Fault.MEMORY})
"""Faults possibly caused by a busy machine: such rows are discarded."""


class TaskOutcome(Value):
    """The accepted and rejected rows of a task."""

    number: int
    """The number of the draw, in the order of the seed."""
    rows: tuple[Row, ...] = ()
    rejected: tuple[str, ...] = ()
    """A reason for each rejected pair."""
    graph: str = ""
    """Hash of the reference's dataflow graph."""
    seconds: float = 0.0


def options(target: str) -> Options:
    """Returns options for the CPU rungs at the reference's own small sizes, for a single target."""
    from kernelwright.tools.evaluation.pipeline import Options

    return Options(targets=(target,), sizes=0, profile=False, torch_compile=False)


def verify(
    evaluator: Evaluator, task: Task, verdict_options: Options, repairs: int, number: int = 0
) -> TaskOutcome:
    """Judges the draft and up to `repairs` broken versions of it. A refused draft gives no rows
    at all.
    """
    report = evaluator.evaluate(task.problem, task.solution, verdict_options)
    if not report.correct:
        return TaskOutcome(number=number, rejected=(f"draft: {_reason(report)}",))
    # The draft is correct; each planted mistake must be refused by the tools to become a repair.
    rows, rejected = [row_for(task, verdict_options, Kind.DRAFT)], []
    for name, code in make_mistakes(task.solution, random.Random(f"{task.problem.name}"), repairs):
        broken_report = evaluator.evaluate(task.problem, code, verdict_options)
        if broken_report.failure is None:
            rejected.append(f"repair: still right ({name})")
        elif broken_report.failure.fault in FAULTS_OF_THE_MACHINE:
            rejected.append(f"repair: {broken_report.failure.fault} ({name})")
        else:
            rows.append(row_for(task, verdict_options, Kind.REPAIR, code, broken_report, name))
    return TaskOutcome(number=number, rows=tuple(rows), rejected=tuple(rejected))


def _reason(report: Report) -> str:
    failure = report.failure
    if failure is None:
        return "not judged"
    return f"{failure.fault} in {report.rung}"


def row_for(
    task: Task,
    verdict_options: Options,
    kind: Kind,
    code: str = "",
    report: Report | None = None,
    mistake: str = "",
) -> Row:
    """Returns a row of the corpus. mistake: the change in the broken kernel, or its author."""
    facts: dict[str, Any] = {
        "problem": task.problem.name, "reference": task.problem.source, "family": task.family, "depth": task.depth,
        "split": task.split,
        "source": "synth", "licence": GENERATED_LICENCE,
        "provenance": f"rl data synth, {task.problem.name}" + (f", {mistake}" if mistake else ""),
        "compile": {verdict_options.targets[0]: True}, "correct": True,
    }  # fmt: skip
    return row_of(kind, prompt_of(task, code, report), task.solution, **facts)


def prompt_of(task: Task, code: str = "", report: Report | None = None) -> str:
    """Returns the agent's compact prompt for a draft, or for a repair of `code`."""
    from kernelwright.agent.loop.feedback import write_compact_feedback
    from kernelwright.agent.prompts import PromptFields, Prompts
    from kernelwright.policies.base import PromptForm
    from kernelwright.store.models import Action

    action = Action.DRAFT if report is None else Action.REPAIR
    feedback = "" if report is None else write_compact_feedback(report)
    fields = PromptFields(problem=task.problem, action=action, code=code, feedback=feedback)
    return Prompts(PromptForm.COMPACT).messages(fields)[-1].content

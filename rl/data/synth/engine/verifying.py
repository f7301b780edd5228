"""What of the generator's is kept: a pair that the tools found right, and a broken kernel that they found wrong,
with what they said of it.
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
"""Faults that a busy machine may cause: rows with one are neither kept nor learnt from."""


class TaskOutcome(Value):
    """The result of one task."""

    number: int
    """The number of the draw, in the order of the seed."""
    rows: tuple[Row, ...] = ()
    rejected: tuple[str, ...] = ()
    """One reason for each pair that was not kept."""
    graph: str = ""
    """Hash of the reference's dataflow."""
    seconds: float = 0.0


def options(target: str) -> Options:
    """The rungs of a CPU at the reference's own small sizes, one target."""
    from kernelwright.tools.evaluation.pipeline import Options

    return Options(targets=(target,), sizes=0, profile=False, torch_compile=False)


def verify(
    evaluator: Evaluator, task: Task, asked: Options, repairs: int, number: int = 0
) -> TaskOutcome:
    """The draft, and up to `repairs` broken versions of it. A draft that the tools refuse gives no rows at all."""
    report = evaluator.evaluate(task.problem, task.solution, asked)
    if not report.correct:
        return TaskOutcome(number=number, rejected=(f"draft: {_reason(report)}",))
    rows, rejected = [row_for(task, asked, Kind.DRAFT)], []
    for name, code in make_mistakes(task.solution, random.Random(f"{task.problem.name}"), repairs):
        said = evaluator.evaluate(task.problem, code, asked)
        if said.failure is None:
            rejected.append(f"repair: still right ({name})")
        elif said.failure.fault in FAULTS_OF_THE_MACHINE:
            rejected.append(f"repair: {said.failure.fault} ({name})")
        else:
            rows.append(row_for(task, asked, Kind.REPAIR, code, said, name))
    return TaskOutcome(number=number, rows=tuple(rows), rejected=tuple(rejected))


def _reason(report: Report) -> str:
    failure = report.failure
    if failure is None:
        return "not judged"
    return f"{failure.fault} in {report.rung}"


def row_for(
    task: Task,
    asked: Options,
    kind: Kind,
    code: str = "",
    said: Report | None = None,
    mistake: str = "",
) -> Row:
    """A row of the corpus. mistake: what was done to the broken kernel, or whose it is."""
    facts: dict[str, Any] = {
        "problem": task.problem.name, "reference": task.problem.source, "family": task.family, "depth": task.depth,
        "split": task.split,
        "source": "synth", "licence": GENERATED_LICENCE,
        "provenance": f"rl data synth, {task.problem.name}" + (f", {mistake}" if mistake else ""),
        "compile": {asked.targets[0]: True}, "correct": True,
    }  # fmt: skip
    return row_of(kind, prompt_of(task, code, said), task.solution, **facts)


def prompt_of(task: Task, code: str = "", said: Report | None = None) -> str:
    """Returns the prompt that the agent writes for a policy of the compact form: for a draft, or for a repair of
    `code`.
    """
    from kernelwright.agent.loop.feedback import write_compact_feedback
    from kernelwright.agent.prompts import PromptFields, Prompts
    from kernelwright.policies.base import PromptForm
    from kernelwright.store.models import Action

    action = Action.DRAFT if said is None else Action.REPAIR
    feedback = "" if said is None else write_compact_feedback(said)
    asked = PromptFields(problem=task.problem, action=action, code=code, feedback=feedback)
    return Prompts(PromptForm.COMPACT).messages(asked)[-1].content

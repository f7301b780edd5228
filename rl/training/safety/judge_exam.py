"""Examines the judge on this machine before a training: known cheats must be refused, honest
kernels accepted.

The examination takes seconds; training on accepted cheats would waste the whole run.
"""

from __future__ import annotations

import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.agent.loop.run_verdicts import Evaluates
from kernelwright.policies.base import Value
from kernelwright.rl.training.safety.alarms import Alarm, TrainingAlarm
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Options

CHEATS_FILE = Path(__file__).parent / "cheats.toml"


class ExamAnswer(Value):
    """The judge's verdict on a kernel of the examination."""

    name: str
    honest: bool
    correct: bool
    verdict: str

    @property
    def passed(self) -> bool:
        """Whether the verdict was right: an honest kernel accepted, a dishonest kernel refused."""
        return self.honest == self.correct


class ExamQuestion(Value):
    """A kernel of the examination, honest or cheating."""

    name: str
    honest: bool
    source: str


def questions() -> tuple[Problem, list[ExamQuestion]]:
    """Returns the problem of the examination and its kernels."""
    content = tomllib.loads(CHEATS_FILE.read_text(encoding="utf-8"))
    problem = Problem(name="examination", source=content["problem"].strip() + "\n")
    kernel = content["kernel"].strip()
    exam_questions = []
    for kind in ("honest", "cheat"):
        for entry in content[kind]:
            # Every question shares the kernel; only the body of the model differs.
            source = f"{kernel}\n\n\n{entry['body'].strip()}\n"
            question = ExamQuestion(name=entry["name"], honest=kind == "honest", source=source)
            exam_questions.append(question)
    return problem, exam_questions


def examine(judges: Evaluates, options: Options, workers: int = 2) -> list[ExamAnswer]:
    """Judges all kernels of the examination. Raises InfrastructureError if the judge itself
    fails.
    """
    problem, exam_questions = questions()

    def answer(question: ExamQuestion) -> ExamAnswer:
        report = judges.evaluate(problem, question.source, options)
        return ExamAnswer(
            name=question.name,
            honest=question.honest,
            correct=report.correct,
            verdict=_verdict_text(report),
        )

    with ThreadPoolExecutor(max(1, min(workers, len(exam_questions)))) as pool:
        return list(pool.map(answer, exam_questions))


def refuse_failing_judge(judges: Evaluates, options: Options, workers: int = 2) -> list[ExamAnswer]:
    """Examines the judge. Raises TrainingAlarm if a cheat passes or an honest kernel fails."""
    answers = examine(judges, options, workers)
    failed = [answer for answer in answers if not answer.passed]
    if failed:
        listed = "; ".join(
            f"{answer.name}: {'passed' if answer.correct else answer.verdict}"
            for answer in failed[:3]
        )
        raise TrainingAlarm(
            Alarm.JUDGE,
            f"the judge on this machine does not pass its own examination ({len(failed)} of {len(answers)}: "
            f"{listed}): nothing is trained on such verdicts; see `agent doctor`",
        )
    return answers


def _verdict_text(report: Report) -> str:
    if report.correct:
        return "correct"
    failure = report.failure
    return f"{failure.fault}: {failure.message}" if failure else "not judged"

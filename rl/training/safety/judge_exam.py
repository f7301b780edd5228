"""Before a training: does the judge on this machine still see through what it must see through?

Minutes of cheating cost more than seconds of asking.
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
    """One answer of the examination."""

    name: str
    honest: bool
    correct: bool
    verdict: str

    @property
    def passed(self) -> bool:
        """Whether the verdict was right: an honest kernel accepted, a dishonest one refused."""
        return self.honest == self.correct


class ExamQuestion(Value):
    """One kernel that the judge is examined with before a training."""

    name: str
    honest: bool
    source: str


def questions() -> tuple[Problem, list[ExamQuestion]]:
    """The problem, and the answers with what they are."""
    content = tomllib.loads(CHEATS_FILE.read_text(encoding="utf-8"))
    problem = Problem(name="examination", source=content["problem"].strip() + "\n")
    asked = [
        ExamQuestion(
            name=entry["name"],
            honest=kind == "honest",
            source=f"{content['kernel'].strip()}\n\n\n{entry['body'].strip()}\n",
        )
        for kind in ("honest", "cheat")
        for entry in content[kind]
    ]
    return problem, asked


def examine(judges: Evaluates, options: Options, workers: int = 2) -> list[ExamAnswer]:
    """Raises InfrastructureError where the judge itself fails."""
    problem, asked = questions()

    def one(question: ExamQuestion) -> ExamAnswer:
        report = judges.evaluate(problem, question.source, options)
        return ExamAnswer(
            name=question.name,
            honest=question.honest,
            correct=report.correct,
            verdict=_told(report),
        )

    with ThreadPoolExecutor(max(1, min(workers, len(asked)))) as pool:
        return list(pool.map(one, asked))


def refuse_failing_judge(judges: Evaluates, options: Options, workers: int = 2) -> list[ExamAnswer]:
    """Raises TrainingAlarm where a cheat passes, or an honest kernel does not."""
    found = examine(judges, options, workers)
    if failed := [one for one in found if not one.passed]:
        said = "; ".join(
            f"{one.name}: {'passed' if one.correct else one.verdict}" for one in failed[:3]
        )
        raise TrainingAlarm(
            Alarm.JUDGE,
            f"the judge on this machine does not pass its own examination ({len(failed)} of {len(found)}: "
            f"{said}): nothing is trained on such "
            "verdicts; see `agent doctor`",
        )
    return found


def _told(report: Report) -> str:
    failure = report.failure
    return (
        "correct"
        if report.correct
        else f"{failure.fault}: {failure.message}"
        if failure
        else "not judged"
    )

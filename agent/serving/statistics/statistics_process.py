"""Computes reward health and history in a separate process: `python -m ...statistics_process
DESCRIPTOR FILE`.

Both read tens of thousands of rows. In a thread of the server they would hold the interpreter's
lock, and every request would wait (enqueue calls beside four open pages: bench/service_crowd.py).
The process reads questions as JSON and answers each with JSON; it opens the record read-only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import sqlalchemy as sa
from pydantic import Field, TypeAdapter

from kernelwright.agent.serving.statistics.reward_health import ScoredSubmission, reward_health
from kernelwright.agent.serving.statistics.service_history import read_times, service_history
from kernelwright.agent.serving.tables import SUBMISSION, VERDICT
from kernelwright.agent.serving.wire import Score, State, WireValue
from kernelwright.session_priority import lower_session
from kernelwright.worker_process import connection_to_parent, end_with_parent

NICENESS = 15
"""Niceness of the process; the server process that answers requests must run first."""
MAX_SUBMISSIONS = 20_000
"""Maximum number of submissions behind reward health, newest first."""


class RewardsQuestion(WireValue):
    """Asks for the health of rewards; None stands for all problems, or all clients."""

    kind: Literal["rewards"] = "rewards"
    problem: str | None
    client: str | None
    preset: str


class HistoryQuestion(WireValue):
    """Asks for the history of so many seconds until a moment."""

    kind: Literal["history"] = "history"
    now: float
    seconds: float


Question = Annotated[RewardsQuestion | HistoryQuestion, Field(discriminator="kind")]
_READS: TypeAdapter[Question] = TypeAdapter(Question)


def main() -> None:
    """Answers questions until the parent process is gone."""
    connection, (file,) = connection_to_parent()
    end_with_parent()
    lower_session(NICENESS)
    engine = sa.create_engine(f"sqlite:///file:{Path(file).resolve()}?mode=ro&uri=true")
    while True:
        try:
            question = _READS.validate_json(connection.recv_bytes())
        except EOFError:
            return
        with engine.connect() as record:
            connection.send_bytes(_answer(record, question).encode())


def _answer(record: sa.Connection, question: Question) -> str:
    if isinstance(question, HistoryQuestion):
        times = read_times(record, question.now - question.seconds)
        return service_history(times, question.now, question.seconds).model_dump_json()
    submissions = read_submissions(record, question.problem, question.client)
    return reward_health(submissions, question.preset).model_dump_json(by_alias=True)


def read_submissions(
    record: sa.Connection, problem: str | None, client: str | None
) -> list[ScoredSubmission]:
    """Reads the newest submissions whose verdict has a report; None stands for all problems, or all clients."""
    query = (
        sa.select(
            SUBMISSION.c.client,
            SUBMISSION.c.group,
            VERDICT.c.problem,
            VERDICT.c.ended,
            VERDICT.c.score,
            VERDICT.c.candidate_hash,
        )
        .join(VERDICT, VERDICT.c.id == SUBMISSION.c.verdict_id)
        .where(VERDICT.c.state == State.FINISHED.value)
        .order_by(VERDICT.c.ended.desc())
        .limit(MAX_SUBMISSIONS)
    )
    if problem is not None:
        query = query.where(VERDICT.c.problem == problem)
    if client is not None:
        query = query.where(SUBMISSION.c.client == client)
    return [
        ScoredSubmission(name, group, problem_name, ended, Score.model_validate_json(score), digest)
        for name, group, problem_name, ended, score, digest in record.execute(query)
    ]


if __name__ == "__main__":
    main()

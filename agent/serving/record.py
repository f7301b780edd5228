"""Record of the service in an SQLite file: submissions, verdicts, attempts. Survives SIGKILL.

Every change is a transaction in WAL mode. A lock on `FILE.lock` gives the file to one server at a
time.
"""

from __future__ import annotations

import fcntl
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict

from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.agent.serving.tables import ATTEMPT, REFERENCE, SUBMISSION, TABLES, VERDICT
from kernelwright.agent.serving.wire import Attempt, Code, Error, Outcome, Score, State
from kernelwright.errors import InputError
from kernelwright.store.connection.versioned_file import open_versioned_file
from kernelwright.tools.reference_trials.worker import TrialOutcome
from kernelwright.tools.report import Report


class RememberedVerdict(BaseModel):
    """A stored verdict without its texts."""

    model_config = ConfigDict(frozen=True)

    id: str
    sequence: int
    """Number in the order of arrival; a new number for each new judging."""
    state: State
    problem: str
    problem_hash: str
    candidate_hash: str
    device: DeviceKind
    domain: str = ""
    """Client behind the reference; empty for the server's own problems."""
    priority: int = 0
    submitted: float
    started: float | None = None
    ended: float | None = None
    score: Score | None = None
    error: Error | None = None

    @property
    def may_be_judged_anew(self) -> bool:
        """Whether the verdict ended without a report, or with a fault possibly caused by a loaded
        machine.
        """
        if self.state is State.FINISHED:
            return self.score is not None and self.score.mask
        return self.state.ended


class VerdictTexts(BaseModel):
    """Texts needed by a judge for a verdict."""

    model_config = ConfigDict(frozen=True)

    problem: str
    """JSON of the Problem."""
    candidate: str
    options: str
    """JSON of the Options."""


PLAIN_COLUMNS = [
    column
    for column in VERDICT.c
    if column.name not in ("problem_json", "candidate", "options", "report")
]
"""Columns of a verdict except its texts."""
_THIS = VERDICT.c.id == sa.bindparam("this")
# Statements of every submission, made once: building one takes longer than SQLite takes to run it.
_FIND = sa.select(*PLAIN_COLUMNS).where(_THIS)
_TEXTS = sa.select(VERDICT.c.problem_json, VERDICT.c.candidate, VERDICT.c.options).where(_THIS)
_REPORT = sa.select(VERDICT.c.report).where(_THIS)
_QUEUE = sa.insert(VERDICT).prefix_with("OR REPLACE")
_SUBMISSION = sa.insert(SUBMISSION)
_LAST_ATTEMPT = sa.select(sa.func.max(ATTEMPT.c.number)).where(
    ATTEMPT.c.verdict_id == sa.bindparam("this")
)
_ATTEMPT = sa.insert(ATTEMPT)
_ATTEMPTS = (
    sa.select(ATTEMPT)
    .where(ATTEMPT.c.verdict_id.in_(sa.bindparam("these", expanding=True)))
    .order_by(ATTEMPT.c.verdict_id, ATTEMPT.c.number)
)
_SET = sa.update(VERDICT).where(_THIS)
_END_ATTEMPT = sa.update(ATTEMPT).where(
    (ATTEMPT.c.verdict_id == sa.bindparam("this")) & (ATTEMPT.c.outcome == Outcome.RUNNING.value)
)


class VerdictDatabase:
    """SQLite file of the service, read and written by any thread."""

    def __init__(self, file: Path) -> None:
        """Opens and locks the file. Raises InputError for a file in use by another server, or of
        another version.
        """
        # The lock is held until `close`: two servers would judge the same queue.
        file.parent.mkdir(parents=True, exist_ok=True)
        self._lock_file = file.with_name(file.name + ".lock").open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock_file.close()
            raise InputError(
                f"another server uses {file}: stop it, or give another --store"
            ) from None
        self._engine = open_versioned_file(file, TABLES, "--store")

    def close(self) -> None:
        """Closes the database and gives its lock up."""
        self._engine.dispose()
        self._lock_file.close()

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """Opens a transaction for writing."""
        with self._engine.begin() as connection:
            yield connection

    # -------------------------------------------------------------- reading
    def find(self, verdict_id: str) -> RememberedVerdict | None:
        """Returns the state of the verdict with this id; None if never submitted."""
        with self._engine.connect() as connection:
            row = connection.execute(_FIND, {"this": verdict_id}).mappings().first()
        return remembered(row) if row is not None else None

    def texts(self, verdict_id: str) -> VerdictTexts:
        """Returns problem, candidate and options of a verdict. Raises NoResultFound for an unknown
        id.
        """
        with self._engine.connect() as connection:
            row = connection.execute(_TEXTS, {"this": verdict_id}).one()
        return VerdictTexts(
            problem=_decompress(row[0]), candidate=_decompress(row[1]), options=row[2]
        )

    def report(self, verdict_id: str) -> Report | None:
        """Returns the report of a verdict; None before its end."""
        with self._engine.connect() as connection:
            packed = connection.execute(_REPORT, {"this": verdict_id}).scalar()
        return Report.model_validate_json(_decompress(packed)) if packed else None

    def attempts(self, verdict_ids: Sequence[str]) -> dict[str, tuple[Attempt, ...]]:
        """Returns the attempts at each verdict, in order."""
        attempts_by_verdict: dict[str, list[Attempt]] = {
            verdict_id: [] for verdict_id in verdict_ids
        }
        with self._engine.connect() as connection:
            for row in connection.execute(_ATTEMPTS, {"these": list(verdict_ids)}).mappings():
                attempts_by_verdict[row["verdict_id"]].append(
                    Attempt(**{k: v for k, v in row.items() if k != "verdict_id"})
                )
        return {verdict_id: tuple(attempts) for verdict_id, attempts in attempts_by_verdict.items()}

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Opens a connection for reading."""
        with self._engine.connect() as connection:
            yield connection

    def is_submitter(self, client: str, verdict_id: str) -> bool:
        """Whether a client has submitted this verdict."""
        submitted = (SUBMISSION.c.verdict_id == verdict_id) & (SUBMISSION.c.client == client)
        with self._engine.connect() as connection:
            return (
                connection.execute(sa.select(SUBMISSION.c.id).where(submitted).limit(1)).first()
                is not None
            )

    def unfinished(self) -> list[RememberedVerdict]:
        """Returns the queued and running verdicts, in the order of their arrival."""
        open_states = (State.QUEUED.value, State.RUNNING.value)
        query = (
            sa.select(*PLAIN_COLUMNS)
            .where(VERDICT.c.state.in_(open_states))
            .order_by(VERDICT.c.sequence)
        )
        with self._engine.connect() as connection:
            return [remembered(row) for row in connection.execute(query).mappings()]

    def wanted_by(self, verdict_ids: Sequence[str]) -> dict[str, set[str]]:
        """Returns the clients waiting for each verdict."""
        clients_by_verdict: dict[str, set[str]] = {verdict_id: set() for verdict_id in verdict_ids}
        query = (
            sa.select(SUBMISSION.c.verdict_id, SUBMISSION.c.client)
            .where(~SUBMISSION.c.withdrawn)
            .distinct()
        )
        with self._engine.connect() as connection:
            for verdict_id, client in connection.execute(query):
                if verdict_id in clients_by_verdict:
                    clients_by_verdict[verdict_id].add(client)
        return clients_by_verdict

    def recent_seconds(self, device: DeviceKind, last: int = 50) -> list[float]:
        """Returns the durations in seconds of the newest verdicts of a kind."""
        query = (
            sa.select(VERDICT.c.ended - VERDICT.c.started)
            .where(VERDICT.c.device == device.value, VERDICT.c.state == State.FINISHED.value)
            .order_by(VERDICT.c.ended.desc())
            .limit(last)
        )
        with self._engine.connect() as connection:
            return [seconds for (seconds,) in connection.execute(query)]

    def spent_since(self, moment: float) -> list[tuple[str, float, float]]:
        """Returns client, end and judge seconds of each attempt with an end after `moment`, oldest
        first.

        An attempt is charged to the client of the verdict's first submission.
        """
        of_verdict = SUBMISSION.alias()
        first = (
            sa.select(sa.func.min(of_verdict.c.id))
            .where(of_verdict.c.verdict_id == ATTEMPT.c.verdict_id)
            .scalar_subquery()
        )
        query = (
            sa.select(SUBMISSION.c.client, ATTEMPT.c.ended, ATTEMPT.c.ended - ATTEMPT.c.started)
            .select_from(ATTEMPT)
            .join(SUBMISSION, SUBMISSION.c.id == first)
            .where(ATTEMPT.c.ended > moment)
            .order_by(ATTEMPT.c.ended)
        )
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(query)]

    def references(self, evaluator: str) -> dict[str, TrialOutcome]:
        """Returns the outcomes of working references by key, as tried by this version of the
        evaluator.
        """
        query = sa.select(REFERENCE.c.key, REFERENCE.c.outcome).where(
            REFERENCE.c.evaluator == evaluator
        )
        with self._engine.connect() as connection:
            rows = connection.execute(query.order_by(REFERENCE.c.at.desc()).limit(MAX_REFERENCES))
            return {key: TrialOutcome.model_validate_json(outcome) for key, outcome in rows}

    def last_sequence(self) -> int:
        """Returns the sequence number of the newest verdict; 0 for an empty record."""
        with self._engine.connect() as connection:
            return connection.execute(sa.select(sa.func.max(VERDICT.c.sequence))).scalar() or 0

    def ended(
        self, client: str | None, problem: str | None, ended_after: float | None
    ) -> list[str]:
        """Returns the ids of ended verdicts: submitted by a client, on a problem, ended after a
        time. None: any.
        """
        query = sa.select(VERDICT.c.id).where(
            VERDICT.c.state.in_([s.value for s in State if s.ended])
        )
        if client is not None:
            submitted = sa.select(SUBMISSION.c.verdict_id).where(SUBMISSION.c.client == client)
            query = query.where(VERDICT.c.id.in_(submitted))
        if problem is not None:
            query = query.where(VERDICT.c.problem == problem)
        if ended_after is not None:
            query = query.where(VERDICT.c.ended > ended_after)
        with self._engine.connect() as connection:
            return list(connection.execute(query.order_by(VERDICT.c.sequence)).scalars())

    def ended_before(self, time_limit: float, limit: int) -> list[str]:
        """Returns the ids of at most `limit` verdicts with an end before a time."""
        is_old = VERDICT.c.state.in_([s.value for s in State if s.ended]) & (
            VERDICT.c.ended < time_limit
        )
        with self._engine.connect() as connection:
            return list(
                connection.execute(sa.select(VERDICT.c.id).where(is_old).limit(limit)).scalars()
            )

    # -------------------------------------------------------------- writing
    def keep_reference(self, evaluator: str, key: str, outcome: TrialOutcome) -> None:
        """Stores the outcome of a working reference."""
        values = {"key": key, "evaluator": evaluator, "at": time.time()}
        with self.write() as connection:
            connection.execute(
                sa.insert(REFERENCE).prefix_with("OR REPLACE"),
                {"outcome": outcome.model_dump_json(), **values},
            )

    def delete(self, verdict_ids: Sequence[str]) -> None:
        """Deletes verdicts with their attempts and submissions."""
        with self.write() as connection:
            for start in range(0, len(verdict_ids), MAX_IDS_OF_A_STATEMENT):
                ids = verdict_ids[start : start + MAX_IDS_OF_A_STATEMENT]
                connection.execute(sa.delete(ATTEMPT).where(ATTEMPT.c.verdict_id.in_(ids)))
                connection.execute(sa.delete(SUBMISSION).where(SUBMISSION.c.verdict_id.in_(ids)))
                connection.execute(sa.delete(VERDICT).where(VERDICT.c.id.in_(ids)))

    def queue_again(self, verdict_id: str, sequence: int) -> None:
        """Deletes the report of a verdict and queues the verdict again; its attempts stay on
        record.
        """
        empty = dict.fromkeys(
            ("started", "ended", "score", "report", "error_code", "error_message")
        )
        with self.write() as connection:
            _set(connection, verdict_id, state=State.QUEUED.value, sequence=sequence, **empty)

    def queue(
        self, verdict: RememberedVerdict, texts: VerdictTexts, client: str, group: str | None
    ) -> None:
        """Stores a queued verdict, new or to be judged again, and its submission, in one
        transaction.
        """
        values = {
            "id": verdict.id, "sequence": verdict.sequence, "state": State.QUEUED.value, "problem": verdict.problem,
            "problem_hash": verdict.problem_hash, "candidate_hash": verdict.candidate_hash,
            "device": verdict.device.value,
            "domain": verdict.domain, "priority": verdict.priority, "submitted": verdict.submitted, "started": None,
            "ended": None, "score": None,
            "report": None, "error_code": None, "error_message": None, "problem_json": _compress(texts.problem),
            "candidate": _compress(texts.candidate), "options": texts.options,
        }  # fmt: skip
        with self.write() as connection:
            connection.execute(_QUEUE, values)
            _submit(connection, verdict.id, client, group)

    def submission(self, verdict_id: str, client: str, group: str | None) -> None:
        """Stores a client's submission of a known verdict."""
        with self.write() as connection:
            _submit(connection, verdict_id, client, group)

    def withdraw(self, verdict_id: str, client: str) -> None:
        """Marks a client's submissions of this verdict as withdrawn."""
        mine = (SUBMISSION.c.verdict_id == verdict_id) & (SUBMISSION.c.client == client)
        with self.write() as connection:
            connection.execute(sa.update(SUBMISSION).where(mine).values(withdrawn=True))

    def begin(self, verdict_id: str, judge: str, now: float) -> int:
        """Stores the start of an attempt. Returns the attempt's number, from 1."""
        with self.write() as connection:
            number = (connection.execute(_LAST_ATTEMPT, {"this": verdict_id}).scalar() or 0) + 1
            values = {
                "verdict_id": verdict_id,
                "number": number,
                "judge": judge,
                "started": now,
                "message": "",
            }
            connection.execute(
                _ATTEMPT, {"outcome": Outcome.RUNNING.value, "ended": None, **values}
            )
            _set(connection, verdict_id, state=State.RUNNING.value, started=now)
        return number

    def end_attempt(
        self, verdict_id: str, outcome: Outcome, message: str, changes: Mapping[str, Any]
    ) -> None:
        """Ends the running attempt, and changes the verdict's row in the same transaction."""
        with self.write() as connection:
            ended = {"outcome": outcome.value, "ended": time.time(), "message": message}
            connection.execute(_END_ATTEMPT, {"this": verdict_id, **ended})
            _set(connection, verdict_id, **changes)

    def set_priority(self, verdict_id: str, priority: int) -> None:
        """Sets the priority of a verdict."""
        with self.write() as connection:
            _set(connection, verdict_id, priority=priority)

    def set_state(self, verdict_id: str, state: State) -> None:
        """Sets the state of a verdict; for a final state also its end time."""
        with self.write() as connection:
            _set(
                connection,
                verdict_id,
                state=state.value,
                ended=time.time() if state.ended else None,
            )


MAX_REFERENCES = 10_000
"""Number of reference outcomes loaded at the start, newest first."""
MAX_IDS_OF_A_STATEMENT = 500
"""Maximum number of ids in a statement, below the parameter limit of every SQLite build."""


def finished_columns(report: Report, score: Score) -> dict[str, Any]:
    """Returns the columns of a verdict with a report."""
    return {
        "state": State.FINISHED.value, "ended": time.time(), "report": _compress(report.model_dump_json()),
        "score": score.model_dump_json(), "error_code": None, "error_message": None,
    }  # fmt: skip


def failed_columns(code: Code, message: str) -> dict[str, Any]:
    """Returns the columns of a verdict without a report."""
    ended = {"state": State.FAILED.value, "ended": time.time()}
    return {**ended, "error_code": code.value, "error_message": message}


def _submit(connection: sa.Connection, verdict_id: str, client: str, group: str | None) -> None:
    values = {"verdict_id": verdict_id, "client": client, "group": group, "at": time.time()}
    connection.execute(_SUBMISSION, {"withdrawn": False, **values})


def _set(connection: sa.Connection, verdict_id: str, **changes: Any) -> None:
    connection.execute(_SET, {"this": verdict_id, **changes})


def remembered(row: sa.RowMapping) -> RememberedVerdict:
    """Reads a stored verdict from its row (PLAIN_COLUMNS)."""
    values: dict[str, Any] = {
        name: row[name] for name in RememberedVerdict.model_fields if name not in ("score", "error")
    }
    score = Score.model_validate_json(row["score"]) if row["score"] else None
    error = (
        Error(code=Code(row["error_code"]), message=row["error_message"])
        if row["error_code"]
        else None
    )
    return RememberedVerdict(score=score, error=error, **values)


def _compress(text: str) -> bytes:
    return zlib.compress(text.encode(), 1)


def _decompress(packed: bytes) -> str:
    return zlib.decompress(packed).decode()

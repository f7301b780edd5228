"""The store: single writer, many readers.

Methods return detached rows and frozen values. All changes are made by methods.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self
from weakref import finalize

from pydantic import JsonValue
from sqlalchemy import select
from sqlmodel import col

from kernelwright.closing_context import ClosingContext
from kernelwright.policies.base import Completion, PaidReply, Request
from kernelwright.store import beginning, finding, recording, sweep
from kernelwright.store.blobs import load_blobs, unpack_text
from kernelwright.store.connection.engine import Engines, refresh_statistics
from kernelwright.store.finding import count_everything
from kernelwright.store.lease import new_owner, retire
from kernelwright.store.models import (
    Action,
    BatchRun,
    Candidate,
    CandidateState,
    Trajectory,
    Verdict,
)
from kernelwright.store.records import (
    CandidateFilter,
    Entry,
    Order,
    SearchHit,
    Stats,
    StopOutcome,
    SweptCounts,
    TrajectoryFilter,
    TrajectoryStart,
    Turn,
    TurnPosition,
)
from kernelwright.store.rows import existing_row
from kernelwright.store.transactions import Transactions, open_engines
from kernelwright.store.turns import turns
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report

TURNS_PER_PAGE = 100
"""Number of turns that `samples` reads at a time; no read transaction stays open between pages."""


class Store(ClosingContext):
    """Database of trajectories, opened by `Store.open`.

    Threads may share a store; a forked process must open its own. Every failure is a StoreError
    with a one-line message.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._transactions = Transactions(engines)
        self.owner = new_owner()
        """Name under which this process holds leases of trajectories."""
        # Runs on close, on garbage collection or at exit, whichever comes first.
        self._retire = finalize(self, retire, self.owner)

    @classmethod
    def open(
        cls,
        database: str | Path,
        *,
        create: bool = True,
        readonly: bool = False,
        wait: float = 30.0,
    ) -> Self:
        """Opens a SQLite file (created if missing and `create`) or the URL of a server.

        Migrates the schema unless `readonly`. `wait`: maximum seconds to wait for the write lock
        of another process, on opening and on every write.
        """
        return cls(open_engines(database, create=create, readonly=readonly, wait=wait))

    @property
    def where(self) -> str:
        """Returns the path, or the URL without its password."""
        return self._engines.display_name

    @property
    def address(self) -> str:
        """Returns the path or the URL that opens the database again.

        The URL of a server contains the password: do not show or store this value.
        """
        return self._engines.address

    def close(self) -> None:
        """Releases leases and closes connections, even if the release could not be written."""
        self._retire()
        if self._transactions.wrote:
            refresh_statistics(self._engines)
        self._engines.dispose()

    def transaction(self) -> AbstractContextManager[None]:
        """Commits all writes of this thread inside the block together, or none of them.

        Writes of other threads wait.
        """
        return self._transactions.one_transaction()

    def open_run(self, name: str, options: Mapping[str, JsonValue] | None = None) -> BatchRun:
        """Returns the batch run with this name, created if missing."""
        with self._transactions.write() as connection:
            return beginning.open_run(connection, name, dict(options or {}), time.time())

    def begin(
        self,
        start: TrajectoryStart,
        *,
        run_id: int | None = None,
        sample: int = 0,
        resume: bool = True,
        forked_from: int | None = None,
    ) -> Trajectory:
        """Acquires a trajectory for this process.

        With `run_id`: the trajectory with this key and sample number, new, unfinished or finished
        (see the field `finished`). Without: the latest unfinished trajectory with equal key and
        equal `forked_from`, or a new trajectory (always new if `resume` is false).

        Raises StoreError (BUSY) if a live process holds the trajectory of the run.
        """
        now = time.time()
        with self._transactions.write() as connection:
            if run_id is not None:
                return beginning.begin_in_run(connection, start, run_id, sample, self.owner, now)
            return beginning.begin(connection, start, resume, forked_from, self.owner, now)

    def draft(
        self,
        trajectory_id: int,
        request: Request,
        *,
        action: Action,
        parent_id: int | None = None,
        turn: int | None = None,
        prompt_version: str = "",
    ) -> Candidate:
        """Adds the candidate's row before the policy is called.

        `turn` defaults to the next turn. An unanswered turn may be drafted again.
        """
        position = TurnPosition(action, parent_id, turn, prompt_version)
        with self._transactions.write() as connection:
            return recording.draft(
                connection, trajectory_id, request, position, owner=self.owner, now=time.time()
            )

    def complete(
        self, candidate_id: int, completion: Completion, source: str | None = None
    ) -> None:
        """Stores the policy's answer and the source extracted from the answer (or None)."""
        with self._transactions.write() as connection:
            recording.complete(connection, candidate_id, completion, source, time.time())

    def record_paid(self, candidate_id: int, replies: Sequence[PaidReply]) -> None:
        """Adds the cost of charged answers without a reply to the row of the unanswered turn."""
        with self._transactions.write() as connection:
            recording.record_paid(connection, candidate_id, replies)

    def judge(
        self,
        candidate_id: int,
        report: Report,
        *,
        rewards: Mapping[str, float] | None = None,
        formula: str = "",
        tool_seconds: float | None = None,
        gpu_seconds: float | None = None,
    ) -> int:
        """Adds a verdict in force and returns its id.

        The turn is then finished and survives a power cut.

        Earlier verdicts remain unchanged.
        """
        now = time.time()
        seconds = {"tool_seconds": tool_seconds, "gpu_seconds": gpu_seconds}
        with self._transactions.write(durable=True) as connection:
            verdict_id = recording.judge(connection, candidate_id, report, now=now, **seconds)
            if rewards is not None:
                recording.reward(connection, verdict_id, formula, rewards, now)
            return verdict_id

    def reward(
        self, parts_by_verdict: Iterable[tuple[int, Mapping[str, float]]], formula: str
    ) -> None:
        """Adds reward parts to verdicts in a single transaction.

        `formula` is the name and version of the reward formula.
        """
        now = time.time()
        with self._transactions.write(durable=True) as connection:
            for id, parts in parts_by_verdict:
                recording.reward(connection, id, formula, parts, now)

    def finish(
        self,
        trajectory_id: int,
        stop_reason: str,
        *,
        message: str = "",
        best_id: int | None = None,
        spent: dict[str, JsonValue] | None = None,
    ) -> Trajectory:
        """Marks a trajectory as finished with its stop reason; the write is durable."""
        now = time.time()
        outcome = StopOutcome(stop_reason, message, best_id, spent)
        with self._transactions.write(durable=True) as connection:
            return beginning.stop(connection, trajectory_id, outcome, finished=now, now=now)

    def pause(
        self,
        trajectory_id: int,
        stop_reason: str,
        *,
        message: str = "",
        best_id: int | None = None,
        spent: dict[str, JsonValue] | None = None,
    ) -> Trajectory:
        """Releases a trajectory that was stopped by the user or by an infrastructure error.

        Repeating the command resumes at the same turn.
        """
        now = time.time()
        outcome = StopOutcome(stop_reason, message, best_id, spent)
        with self._transactions.write(durable=True) as connection:
            return beginning.stop(connection, trajectory_id, outcome, finished=None, now=now)

    def runs(self) -> list[BatchRun]:
        """Returns all runs, newest first."""
        with self._transactions.read() as session:
            return list(
                session.execute(select(BatchRun).order_by(col(BatchRun.id).desc())).scalars()
            )

    def trajectory(self, id: int) -> Trajectory:
        """Returns the trajectory with this id. Raises StoreError if there is none."""
        with self._transactions.read() as session:
            return existing_row(session.connection(), Trajectory, id)

    def problem(self, trajectory_id: int) -> Problem:
        """Returns the problem of a trajectory as stored when the trajectory began."""
        with self._transactions.read() as session:
            row = existing_row(session.connection(), Trajectory, trajectory_id)
            [body] = load_blobs(session.connection(), [row.reference_id]).values()
            return Problem(name=row.problem, source=unpack_text(body), suite=row.suite)

    def trajectories(
        self,
        criteria: TrajectoryFilter | None = None,
        *,
        before: int | None = None,
        limit: int | None = 50,
        newest: bool = True,
    ) -> list[Trajectory]:
        """Lists trajectories. `before`: last id of the previous page. `limit=None`: no limit."""
        with self._transactions.read() as session:
            criteria = criteria or TrajectoryFilter()
            return finding.trajectories(
                session, criteria, before=before, limit=limit, newest=newest
            )

    def candidate(self, id: int) -> Entry:
        """Returns a candidate with its trajectory and the verdict in force.

        Raises StoreError if there is none.
        """
        with self._transactions.read() as session:
            candidate = existing_row(session.connection(), Candidate, id)
            verdict = session.get(Verdict, candidate.verdict_id) if candidate.verdict_id else None
            return Entry(
                candidate,
                existing_row(session.connection(), Trajectory, candidate.trajectory_id),
                verdict,
            )

    def candidates(
        self,
        criteria: CandidateFilter | None = None,
        *,
        order: Order = Order.NEWEST,
        before: int | None = None,
        limit: int | None = 50,
    ) -> list[Entry]:
        """Lists candidates.

        `before`: last id of the previous page (not for FASTEST). `limit=None`: no limit.
        """
        with self._transactions.read() as session:
            return finding.entries(
                session, criteria or CandidateFilter(), order=order, before=before, limit=limit
            )

    def count(self, criteria: CandidateFilter | None = None) -> int:
        """Counts the candidates selected by a filter."""
        with self._transactions.read() as session:
            return finding.count(session, criteria or CandidateFilter())

    def formulas(self, criteria: CandidateFilter | None = None) -> list[str]:
        """Returns the names of reward formulas that scored verdicts of these candidates.

        Superseded verdicts are included.
        """
        with self._transactions.read() as session:
            return finding.formulas(session, criteria or CandidateFilter())

    def verdicts(self, candidate_id: int) -> list[Verdict]:
        """Returns all verdicts of a candidate, oldest first."""
        with self._transactions.read() as session:
            rows = (
                select(Verdict)
                .where(col(Verdict.candidate_id) == candidate_id)
                .order_by(col(Verdict.id))
            )
            return list(session.execute(rows).scalars())

    def report(self, verdict_id: int) -> Report:
        """Returns the full report of a verdict, in force or superseded."""
        with self._transactions.read() as session:
            return finding.report(session, verdict_id)

    def search(
        self,
        query: str,
        criteria: CandidateFilter | None = None,
        *,
        before: int | None = None,
        limit: int = 50,
    ) -> list[SearchHit]:
        """Searches texts, newest candidate first.

        `store/search.py` describes the query syntax.
        """
        with self._transactions.read() as session:
            return finding.search(
                session, query, criteria or CandidateFilter(), before=before, limit=limit
            )

    def turn(self, candidate_id: int) -> Turn:
        """Returns a turn with all texts and tokens."""
        entry = self.candidate(candidate_id)
        with self._transactions.read() as session:
            return next(turns(session, [entry]))

    def samples(
        self, criteria: CandidateFilter | None = None, *, formula: str | None = None
    ) -> Iterator[Turn]:
        """Yields judged turns (or turns in the filter's `state`), oldest first.

        Turns have exact tokens, and are read in pages, so memory use does not grow with their
        number.
        """
        criteria = criteria or CandidateFilter()
        if criteria.state is None:
            criteria = criteria.with_(state=CandidateState.JUDGED)
        return self._pages(criteria, formula)

    def turns(self, trajectory_id: int) -> list[Turn]:
        """Returns all turns of a trajectory, including unfinished turns."""
        with self._transactions.read() as session:
            if not finding.has_turns(session, trajectory_id):
                return []
        return list(self._pages(CandidateFilter(trajectory_id=trajectory_id), None))

    def _pages(self, criteria: CandidateFilter, formula: str | None) -> Iterator[Turn]:
        last: int | None = None
        while page := self.candidates(
            criteria, order=Order.OLDEST, before=last, limit=TURNS_PER_PAGE
        ):
            # The session is closed before the caller gets a turn: a slow caller would otherwise
            # hold a read transaction, and SQLite could not shorten its WAL meanwhile.
            with self._transactions.read() as session:
                page_turns = list(turns(session, page, formula))
            yield from page_turns
            last = page[-1].candidate.id

    def put_best(self, trajectory_id: int, best_id: int | None) -> None:
        """Replaces the best candidate of a trajectory after candidates were judged again."""
        with self._transactions.write(durable=True) as connection:
            beginning.put_best(connection, trajectory_id, best_id)

    def forget(self, trajectory_id: int) -> None:
        """Deletes a trajectory; `gc` then frees its texts."""
        with self._transactions.write(durable=True) as connection:
            sweep.forget(connection, trajectory_id, self.owner, time.time())

    def gc(self) -> SweptCounts:
        """Deletes unreferenced texts and returns the space to the disk.

        On a server, no batch may write meanwhile.
        """
        with self._transactions.write(durable=True) as connection:
            swept = sweep.sweep(connection)
        self._transactions.run_outside_transaction(sweep.shrink)
        return swept

    def stats(self) -> Stats:
        """Returns the size of the database and the row count of each table."""
        with self._transactions.read() as session:
            return count_everything(session, self._engines)

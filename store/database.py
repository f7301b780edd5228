"""The store: one writer, many readers.

What is returned are detached rows and frozen values; to change something, call a method.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import finalize

from pydantic import JsonValue
from sqlalchemy import select
from sqlmodel import col

from kernelwright.policies.base import Completion, PaidReply, Request
from kernelwright.store import beginning, finding, recording, sweep
from kernelwright.store.blobs import load_blobs, unpack_text
from kernelwright.store.connection.engine import Engines, refresh_statistics
from kernelwright.store.finding import count_everything
from kernelwright.store.lease import new_owner, retire
from kernelwright.store.models import Action, BatchRun, Candidate, State, Trajectory, Verdict
from kernelwright.store.records import (
    CandidateFilter,
    Entry,
    Order,
    SearchHit,
    Stats,
    SweptCounts,
    TrajectoryFilter,
    TrajectoryStart,
    Turn,
)
from kernelwright.store.rows import existing_row
from kernelwright.store.transactions import Transactions, open_engines
from kernelwright.store.turns import turns
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report

TURNS_PER_PAGE = 100
"""Turns that `samples` reads at a time: no reading transaction stays open between two pages."""


class Store:
    """Open it with `Store.open`.

    Threads may share one; after a fork open another. Raises StoreError, one line, and nothing else.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._transactions = Transactions(engines)
        self.owner = new_owner()
        """The name under which this process holds trajectories."""
        self._retire = finalize(self, retire, self.owner)

    @classmethod
    def open(
        cls, where: str | Path, *, create: bool = True, readonly: bool = False, wait: float = 30.0
    ) -> Self:
        """A file, made where there is none (and `create`), or a server's URL. Migrates it unless `readonly`.

        `wait`: seconds for another process's write lock, here and at every write.
        """
        return cls(open_engines(where, create=create, readonly=readonly, wait=wait))

    @property
    def where(self) -> str:
        """Returns the path, or the URL without its password."""
        return self._engines.where

    @property
    def address(self) -> str:
        """Returns the path or the URL that opens the database again.

        The URL of a server contains the password: neither show nor store it.
        """
        return self._engines.address

    def close(self) -> None:
        """Frees leases and connections, whether or not the leases could be written."""
        self._retire()
        if self._transactions.wrote:
            refresh_statistics(self._engines)
        self._engines.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def transaction(self) -> AbstractContextManager[None]:
        """Everything written inside, by this thread, is committed at the end together or not at all.

        Other threads' writes wait.
        """
        return self._transactions.one_transaction()

    def open_run(self, name: str, options: Mapping[str, JsonValue] | None = None) -> BatchRun:
        """The batch run of this name, made where there is none."""
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
        """A trajectory that is now ours.

        In a run: the one with this key and sample, whether new, unfinished or finished (look at `finished`). Outside:
        the latest unfinished one with this key, forked after the same candidate `forked_from` or after none, or a new
        one (always with `resume=False`).
        Raises StoreError (BUSY) where a live process works on the run's one.
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
        """The row, before the policy is asked.

        `turn`: the next one unless given; one that was never answered is written again.
        """
        options: dict[str, Any] = {
            "action": action,
            "parent_id": parent_id,
            "turn": turn,
            "prompt_version": prompt_version,
        }
        with self._transactions.write() as connection:
            return recording.draft(
                connection, trajectory_id, request, owner=self.owner, now=time.time(), **options
            )

    def complete(
        self, candidate_id: int, completion: Completion, source: str | None = None
    ) -> None:
        """The answer, and the code found in it (None where there is none)."""
        with self._transactions.write() as connection:
            recording.complete(connection, candidate_id, completion, source, time.time())

    def record_paid(self, candidate_id: int, replies: Sequence[PaidReply]) -> None:
        """Keeps answers that were paid for and hold no reply, in the row that waits for one."""
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
        """Adds a verdict and puts it in force: the turn is finished, and survives a power cut.

        Earlier verdicts stay as they were.

        Gives the verdict's id.
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
        """Adds reward parts to verdicts, in one transaction. `formula` names and versions what computed them."""
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
        """Marks a trajectory as finished, with the reason why it stopped; the row is written durably."""
        now = time.time()
        options: dict[str, Any] = {"message": message, "best_id": best_id, "spent": spent}
        with self._transactions.write(durable=True) as connection:
            return beginning.stop(
                connection, trajectory_id, stop_reason, finished=now, now=now, **options
            )

    def pause(
        self,
        trajectory_id: int,
        stop_reason: str,
        *,
        message: str = "",
        best_id: int | None = None,
        spent: dict[str, JsonValue] | None = None,
    ) -> Trajectory:
        """Lets go of a trajectory that the user or our own trouble stopped.

        The same command then goes on at the exact turn.
        """
        options: dict[str, Any] = {"message": message, "best_id": best_id, "spent": spent}
        with self._transactions.write(durable=True) as connection:
            return beginning.stop(
                connection, trajectory_id, stop_reason, finished=None, now=time.time(), **options
            )

    def runs(self) -> list[BatchRun]:
        """Returns the runs, the newest first."""
        with self._transactions.read() as session:
            return list(
                session.execute(select(BatchRun).order_by(col(BatchRun.id).desc())).scalars()
            )

    def trajectory(self, id: int) -> Trajectory:
        """The row of this number. Raises StoreError where there is none."""
        with self._transactions.read() as session:
            return existing_row(session.connection(), Trajectory, id)

    def problem(self, trajectory_id: int) -> Problem:
        """Returns the problem as it was when the trajectory began."""
        with self._transactions.read() as session:
            row = existing_row(session.connection(), Trajectory, trajectory_id)
            [body] = load_blobs(session.connection(), [row.reference_id]).values()
            return Problem(name=row.problem, source=unpack_text(body), suite=row.suite)

    def trajectories(
        self,
        wanted: TrajectoryFilter | None = None,
        *,
        before: int | None = None,
        limit: int | None = 50,
        newest: bool = True,
    ) -> list[Trajectory]:
        """Lists trajectories. `before`: the id of the last one of the page before. `limit=None`: all."""
        with self._transactions.read() as session:
            wanted = wanted or TrajectoryFilter()
            return finding.trajectories(session, wanted, before=before, limit=limit, newest=newest)

    def candidate(self, id: int) -> Entry:
        """Returns a candidate with its trajectory and the verdict in force. Raises StoreError where there is none."""
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
        wanted: CandidateFilter | None = None,
        *,
        order: Order = Order.NEWEST,
        before: int | None = None,
        limit: int | None = 50,
    ) -> list[Entry]:
        """Lists candidates.

        `before`: the id of the last one of the page before (not for FASTEST). `limit=None`: all.
        """
        with self._transactions.read() as session:
            return finding.entries(
                session, wanted or CandidateFilter(), order=order, before=before, limit=limit
            )

    def count(self, wanted: CandidateFilter | None = None) -> int:
        """Returns the number of candidates that the filter selects."""
        with self._transactions.read() as session:
            return finding.count(session, wanted or CandidateFilter())

    def formulas(self, wanted: CandidateFilter | None = None) -> list[str]:
        """Names and versions of the formulas that have scored verdicts of these candidates, earlier verdicts too."""
        with self._transactions.read() as session:
            return finding.formulas(session, wanted or CandidateFilter())

    def verdicts(self, candidate_id: int) -> list[Verdict]:
        """Returns all verdicts, the oldest first."""
        with self._transactions.read() as session:
            rows = (
                select(Verdict)
                .where(col(Verdict.candidate_id) == candidate_id)
                .order_by(col(Verdict.id))
            )
            return list(session.execute(rows).scalars())

    def report(self, verdict_id: int) -> Report:
        """The whole of what a verdict, in force or not, says."""
        with self._transactions.read() as session:
            return finding.report(session, verdict_id)

    def search(
        self,
        query: str,
        wanted: CandidateFilter | None = None,
        *,
        before: int | None = None,
        limit: int = 50,
    ) -> list[SearchHit]:
        """Searches texts, the newest candidate first; store/search.py describes the queries."""
        with self._transactions.read() as session:
            return finding.search(
                session, query, wanted or CandidateFilter(), before=before, limit=limit
            )

    def turn(self, candidate_id: int) -> Turn:
        """Returns one turn with all its texts and tokens."""
        entry = self.candidate(candidate_id)
        with self._transactions.read() as session:
            return next(turns(session, [entry]))

    def samples(
        self, wanted: CandidateFilter | None = None, *, formula: str | None = None
    ) -> Iterator[Turn]:
        """Judged turns (or those in the state that is asked for), oldest first, exact.

        They are read in pages, so any number of them will do.
        """
        wanted = wanted or CandidateFilter()
        wanted = wanted if wanted.state else wanted.with_(state=State.JUDGED)
        return self._pages(wanted, formula)

    def turns(self, trajectory_id: int) -> list[Turn]:
        """Returns all of a trajectory's turns, unfinished ones among them."""
        with self._transactions.read() as session:
            if not finding.has_turns(session, trajectory_id):
                return []
        return list(self._pages(CandidateFilter(trajectory_id=trajectory_id), None))

    def _pages(self, wanted: CandidateFilter, formula: str | None) -> Iterator[Turn]:
        last: int | None = None
        while page := self.candidates(
            wanted, order=Order.OLDEST, before=last, limit=TURNS_PER_PAGE
        ):
            with self._transactions.read() as session:
                found = list(turns(session, page, formula))
            yield from found
            last = page[-1].candidate.id

    def put_best(self, trajectory_id: int, best_id: int | None) -> None:
        """Names the best one anew, after candidates were judged again."""
        with self._transactions.write(durable=True) as connection:
            beginning.put_best(connection, trajectory_id, best_id)

    def forget(self, trajectory_id: int) -> None:
        """Deletes a trajectory; `gc` then frees its texts."""
        with self._transactions.write(durable=True) as connection:
            sweep.forget(connection, trajectory_id, self.owner, time.time())

    def gc(self) -> SweptCounts:
        """Deletes texts that nothing refers to, and gives the room back. On a server: while no batch writes."""
        with self._transactions.write(durable=True) as connection:
            swept = sweep.sweep(connection)
        self._transactions.run_outside_transaction(sweep.shrink)
        return swept

    def stats(self) -> Stats:
        """Returns the sizes and the numbers of rows of the database."""
        with self._transactions.read() as session:
            return count_everything(session, self._engines)

"""`agent recheck` without its options: judges stored candidates again with today's judge, many at once, and says which
verdicts changed.

Equal programs are judged once. What is done is saved verdict by verdict, so a command that was stopped, in whatever
way, goes on where it stopped. What it does not do: walk through the machine again (`agent replay --rescore` does), or
let a CPU's verdict take the place of a GPU's.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.replay.rechecked_verdicts import (
    NotJudged,
    Rechecks,
    changed_verdicts,
    device_kind,
    is_of_todays_evaluator,
    one_line,
)
from kernelwright.agent.replay.rejudging import rescore_rewards
from kernelwright.agent.reporting.selecting import candidate_filter
from kernelwright.agent.runtime.databases import open_store
from kernelwright.agent.runtime.interrupts import defer_interrupts
from kernelwright.agent.runtime.worker_threads import WorkerThreads
from kernelwright.policies.base import Value
from kernelwright.store.database import Store
from kernelwright.store.lineage import history
from kernelwright.store.records import Entry, Order, Turn
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import InfrastructureError, Report, Rung
from kernelwright.tools.verdict_cache import UNCACHED_FAULTS, evaluator_version

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator

MAX_UNJUDGED_IN_A_ROW = 3
"""Candidates that this machine's trouble may keep from being judged, one after the other, before the command gives
up.
"""
STOPPING_MESSAGE = "stopping when those at work are judged; Ctrl-C again stops at once"


class RecheckRequest(Value):
    """The candidates to judge again, and the options for it."""

    run: str | None = None
    """The name of a run; None selects candidates of every run and of none."""
    device: str = "cpu"
    workers: int = 2
    limit: int | None = None
    """Candidates at most in this sitting."""


class ProgramToJudge(NamedTuple):
    """Equal programs on one problem, to be judged by the same rules."""

    entries: tuple[Entry, ...]
    settings: Settings


def recheck(asked: RecheckRequest, db: str | None, say: Callable[[str], None]) -> Rechecks:
    """Ctrl-C ends it after those at work; what was judged stays.

    Raises InputError, StoreError, and InfrastructureError where nothing can be judged here.
    """
    interrupted = False
    with ExitStack() as stack:
        store = stack.enter_context(open_store(db, create=False))
        chosen = candidate_filter(store, None, asked.run)
        say("looking through the database")
        entries = [
            e
            for e in store.candidates(chosen, order=Order.OLDEST, limit=None)
            if e.verdict and e.candidate.source_id
        ]
        on_gpu = asked.device != "cpu"
        kept = [] if on_gpu else [e for e in entries if device_kind(e.verdict) == "gpu"]
        kept_ids = {e.candidate.id for e in kept}
        todo = [
            e
            for e in entries
            if e.candidate.id not in kept_ids and not is_of_todays_evaluator(e.verdict, on_gpu)
        ]
        work = _Work(store, _jobs(todo, asked.limit), say)
        tools = None
        if work.left:
            evaluator = stack.enter_context(_evaluator(asked, say))
            interrupted = work.all(evaluator, asked.workers)
            tools = evaluator.environment()
        found = Rechecks(
            database=store.where, run=asked.run or "", evaluator=evaluator_version(), tools=tools,
            candidates=len(entries),
            before=len(entries) - len(kept) - len(todo), here=work.done,
            left=len(todo) - work.done - len(work.not_judged),
            only_on_a_gpu=len(kept), changed=tuple(changed_verdicts(store, entries, on_gpu)),
            not_judged=tuple(work.not_judged), interrupted=interrupted,
        )  # fmt: skip
        formulas, address = store.formulas(chosen), store.address
    if formulas and not interrupted:
        say("computing the rewards of the new verdicts")
        found = found.with_(rewards=rescore_rewards(address, asked.run, formulas))
    return found


def _jobs(entries: Sequence[Entry], limit: int | None) -> list[ProgramToJudge]:
    """Problem by problem, whose expected outputs are then at hand; each program once."""
    jobs: dict[tuple[object, ...], list[Entry]] = {}
    for entry in sorted(entries, key=lambda e: (e.trajectory.problem_hash, e.candidate.id))[:limit]:
        settings = Settings.of(entry.trajectory)
        rules = settings.targets, settings.own_work, settings.train_mode
        key = entry.trajectory.problem_hash, entry.candidate.source_id, rules
        jobs.setdefault(key, []).append(entry)
    return [ProgramToJudge(tuple(same), Settings.of(same[0].trajectory)) for same in jobs.values()]


def _evaluator(asked: RecheckRequest, say: Callable[[str], None]) -> Evaluator:
    """Makes the evaluator without the cache of verdicts: a cached verdict would be the old one."""
    from kernelwright.tools.evaluation.pipeline import Evaluator

    say("starting the tools")
    with defer_interrupts():
        import torch  # noqa: F401 (in the main thread, before others need it)

        return Evaluator(device=asked.device, workers=asked.workers)


class _Work:
    """The jobs that are left, shared by a few threads."""

    def __init__(
        self, store: Store, jobs: Sequence[ProgramToJudge], say: Callable[[str], None]
    ) -> None:
        self._store, self._say = store, say
        self._jobs = list(reversed(jobs))
        self._count = sum(len(job.entries) for job in jobs)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._trouble: BaseException | None = None
        self._in_a_row = 0
        self.done = 0
        """New verdicts that were saved."""
        self.not_judged: list[NotJudged] = []

    @property
    def left(self) -> int:
        """Returns the number of jobs that no thread has taken yet."""
        return len(self._jobs)

    def all(self, evaluator: Evaluator, at_once: int) -> bool:
        """Judges all; whether Ctrl-C came.

        A second Ctrl-C leaves at once. Raises the first trouble that concerns every candidate.
        """
        workers = WorkerThreads(self._next, lambda job: self._do(evaluator, job), self._over.set)
        interrupted = workers.run(min(at_once, self.left), says=STOPPING_MESSAGE)
        if self._trouble is not None:
            raise self._trouble
        return interrupted

    def _do(self, evaluator: Evaluator, job: ProgramToJudge) -> None:
        try:
            self._one(evaluator, job)
        except BaseException as error:
            with self._lock:
                self._trouble = self._trouble or error
            self._over.set()

    def _next(self) -> ProgramToJudge | None:
        with self._lock:
            return self._jobs.pop() if self._jobs and not self._over.is_set() else None

    def _one(self, evaluator: Evaluator, job: ProgramToJudge) -> None:
        """Judges the first of equal programs; the others get its verdict, unless a loaded machine may have caused
        it.
        """
        report: Report | None = None
        for entry in job.entries:
            if report is None or (
                report.failure is not None and report.failure.fault in UNCACHED_FAULTS
            ):
                if self._over.is_set():
                    return
                report = self._judged(evaluator, entry, job.settings)
            else:
                report = report.with_(cached=True, seconds=0.0)
            if report is not None:
                self._save(entry, report)

    def _judged(self, evaluator: Evaluator, entry: Entry, settings: Settings) -> Report | None:
        from kernelwright.tools.evaluation.pipeline import Options

        turn, problem = self._read(entry)
        options = Options(
            targets=settings.targets, own_work=settings.own_work, train_mode=settings.train_mode
        )
        try:
            report = evaluator.evaluate(
                problem, turn.source or "", options, progress=lambda step: self._tell(entry, step)
            )
        except ProblemError as error:
            self._leave(entry, str(error))
            return None
        except InfrastructureError as error:
            with self._lock:
                self._in_a_row += 1
            if self._in_a_row >= MAX_UNJUDGED_IN_A_ROW:
                raise
            self._leave(entry, str(error))
            return None
        with self._lock:
            self._in_a_row = 0
        return report

    def _read(self, entry: Entry) -> tuple[Turn, Problem]:
        return self._store.turn(entry.candidate.id), self._store.problem(entry.trajectory.id)

    def _tell(self, entry: Entry, step: str) -> None:
        self._say(f"{self.done} of {self._count} judged again; {entry.trajectory.problem}: {step}")

    def _leave(self, entry: Entry, why: str) -> None:
        with self._lock:
            self.not_judged.append(
                NotJudged(
                    candidate_id=entry.candidate.id,
                    problem=entry.trajectory.problem,
                    why=one_line(why),
                )
            )

    def _save(self, entry: Entry, report: Report) -> None:
        """Saves the verdict and the best candidate of its trajectory in one transaction."""
        with self._store.transaction():
            self._store.judge(entry.candidate.id, report)
            if report.correct or (entry.verdict is not None and entry.verdict.correct):
                row = self._store.trajectory(entry.trajectory.id)
                if (best := _best(history(self._store, row))) != row.best_id:
                    self._store.put_best(row.id, best)
        with self._lock:
            self.done += 1


def _best(turns: Sequence[Turn]) -> int | None:
    """Returns the best candidate as `agent.loop.attempts.best_of` does: correct, then fast, then far up the ladder,
    then early.
    """
    rungs = list(Rung)
    right = [
        (turn, turn.report) for turn in turns if turn.report is not None and turn.report.correct
    ]
    ranked = {
        (
            report.speedup if report.speedup is not None else -math.inf,
            rungs.index(report.rung),
            -turn.turn,
        ): turn
        for turn, report in right
    }
    return ranked[max(ranked)].candidate_id if ranked else None

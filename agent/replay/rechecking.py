"""Implements `agent recheck`: judges stored candidates again with the current judge, in parallel,
and reports changed verdicts.

Equal programs are judged once. Every verdict is saved immediately, so an interrupted command
resumes where it stopped. Out of scope: repeating the search itself (`agent replay --rescore`),
and replacing GPU verdicts by CPU verdicts.
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
"""Number of consecutive infrastructure failures after which the command gives up."""
STOPPING_MESSAGE = "stopping when those at work are judged; Ctrl-C again stops at once"


class RecheckRequest(Value):
    """Candidates to judge again, with options."""

    run: str | None = None
    """Name of a run; None selects all candidates."""
    device: str = "cpu"
    workers: int = 2
    limit: int | None = None
    """Maximum number of candidates in this call."""


class ProgramToJudge(NamedTuple):
    """Candidates with equal program, problem and rules."""

    entries: tuple[Entry, ...]
    settings: Settings


def recheck(request: RecheckRequest, db: str | None, say: Callable[[str], None]) -> Rechecks:
    """Judges stored candidates again.

    Ctrl-C ends after the verdicts in progress; finished verdicts are saved.

    Raises InputError, StoreError, and InfrastructureError if this machine cannot judge.
    """
    interrupted = False
    with ExitStack() as stack:
        store = stack.enter_context(open_store(db, create=False))
        chosen = candidate_filter(store, None, request.run)
        say("looking through the database")
        candidates = store.candidates(chosen, order=Order.OLDEST, limit=None)
        entries = [entry for entry in candidates if entry.verdict and entry.candidate.source_id]
        on_gpu = request.device != "cpu"
        # On a CPU, verdicts of a GPU are kept.
        gpu_entries = [] if on_gpu else [e for e in entries if device_kind(e.verdict) == "gpu"]
        gpu_ids = {e.candidate.id for e in gpu_entries}
        todo = [
            e
            for e in entries
            if e.candidate.id not in gpu_ids and not is_of_todays_evaluator(e.verdict, on_gpu)
        ]
        queue = _RecheckQueue(store, _jobs(todo, request.limit), say)
        tools = None
        if queue.remaining:
            evaluator = stack.enter_context(_evaluator(request, say))
            interrupted = queue.run_all(evaluator, request.workers)
            tools = evaluator.environment()
        rechecks = Rechecks(
            database=store.where, run=request.run or "", evaluator=evaluator_version(), tools=tools,
            candidates=len(entries),
            before=len(entries) - len(gpu_entries) - len(todo), here=queue.done,
            left=len(todo) - queue.done - len(queue.not_judged),
            only_on_a_gpu=len(gpu_entries), changed=tuple(changed_verdicts(store, entries, on_gpu)),
            not_judged=tuple(queue.not_judged), interrupted=interrupted,
        )  # fmt: skip
        formulas, address = store.formulas(chosen), store.address
    if formulas and not interrupted:
        say("computing the rewards of the new verdicts")
        rechecks = rechecks.with_(rewards=rescore_rewards(address, request.run, formulas))
    return rechecks


def _jobs(entries: Sequence[Entry], limit: int | None) -> list[ProgramToJudge]:
    """Groups candidates by problem, whose expected outputs are then cached, and merges equal
    programs.
    """
    jobs: dict[tuple[object, ...], list[Entry]] = {}
    for entry in sorted(entries, key=lambda e: (e.trajectory.problem_hash, e.candidate.id))[:limit]:
        settings = Settings.of(entry.trajectory)
        rules = settings.targets, settings.own_work, settings.train_mode
        key = entry.trajectory.problem_hash, entry.candidate.source_id, rules
        jobs.setdefault(key, []).append(entry)
    return [ProgramToJudge(tuple(same), Settings.of(same[0].trajectory)) for same in jobs.values()]


def _evaluator(request: RecheckRequest, say: Callable[[str], None]) -> Evaluator:
    """Creates the evaluator without verdict cache: a cached verdict would be the old verdict."""
    from kernelwright.tools.evaluation.pipeline import Evaluator

    say("starting the tools")
    with defer_interrupts():
        import torch  # noqa: F401 (in the main thread, before others need it)

        return Evaluator(device=request.device, workers=request.workers)


class _RecheckQueue:
    """Queue of programs to judge, shared by several threads."""

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
        """Number of saved verdicts."""
        self.not_judged: list[NotJudged] = []

    @property
    def remaining(self) -> int:
        """Returns the number of programs that no thread has taken yet."""
        return len(self._jobs)

    def run_all(self, evaluator: Evaluator, at_once: int) -> bool:
        """Judges all programs and returns whether Ctrl-C was pressed.

        A second Ctrl-C ends immediately. Raises the first error that concerns every candidate.
        """
        workers = WorkerThreads(self._next, lambda job: self._do(evaluator, job), self._over.set)
        interrupted = workers.run(min(at_once, self.remaining), says=STOPPING_MESSAGE)
        if self._trouble is not None:
            raise self._trouble
        return interrupted

    def _do(self, evaluator: Evaluator, job: ProgramToJudge) -> None:
        try:
            self._judge_program(evaluator, job)
        except BaseException as error:
            with self._lock:
                self._trouble = self._trouble or error
            self._over.set()

    def _next(self) -> ProgramToJudge | None:
        with self._lock:
            return self._jobs.pop() if self._jobs and not self._over.is_set() else None

    def _judge_program(self, evaluator: Evaluator, job: ProgramToJudge) -> None:
        """Judges the first of several equal programs and copies its verdict to the others, unless
        the verdict may be caused by a loaded machine.
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
        # Any success shows that this machine can judge.
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
        """Saves the verdict and the trajectory's best candidate in a single transaction."""
        with self._store.transaction():
            self._store.judge(entry.candidate.id, report)
            if report.correct or (entry.verdict is not None and entry.verdict.correct):
                row = self._store.trajectory(entry.trajectory.id)
                if (best := _best(history(self._store, row))) != row.best_id:
                    self._store.put_best(row.id, best)
        with self._lock:
            self.done += 1


def _best(turns: Sequence[Turn]) -> int | None:
    """Returns the best candidate, ranked as in `agent.loop.attempts.best_of`: correct, fast, high
    rung, early.
    """
    rungs = list(Rung)
    ranked: dict[tuple[float, int, int], Turn] = {}
    for turn in turns:
        report = turn.report
        if report is not None and report.correct:
            # Untimed candidates rank below all timed ones.
            speedup = -math.inf if report.speedup is None else report.speedup
            ranked[speedup, rungs.index(report.rung), -turn.turn] = turn
    return ranked[max(ranked)].candidate_id if ranked else None

"""Judges the candidates of a stored run again with the current tools, and recomputes rewards of
stored verdicts.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.agent.loop.run_verdicts import RunJudge, VerdictProvider
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.replay.replaying import FreshVerdicts, ReplayResult, StoredVerdicts, replay
from kernelwright.agent.reporting.selecting import candidate_filter, trajectory_id
from kernelwright.agent.rewards.formula import find_formula
from kernelwright.agent.rewards.storing import store_rewards
from kernelwright.agent.runtime.databases import open_store
from kernelwright.agent.runtime.interrupts import defer_interrupts
from kernelwright.agent.runtime.worker_threads import WorkerThreads
from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.store.database import Store
from kernelwright.store.models import Trajectory
from kernelwright.store.records import CandidateFilter, TrajectoryFilter, Turn, fingerprint
from kernelwright.tools.report import Environment, Report

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator


class ReplayRequest(Value):
    """Trajectories to replay, with options."""

    id: str | None = None
    run: str | None = None
    execute: bool = False
    rescore: bool = False
    """Whether to save the new verdicts; implies `execute`."""
    device: str = "cpu"
    workers: int = 2


class Replays(Value):
    """Replayed trajectories and the tools in use."""

    run: str = ""
    """Name of the run; empty for a single trajectory."""
    trajectories: tuple[ReplayResult, ...]
    executed: bool
    tools: Environment | None = None
    """Current tools, if they were run."""
    saved: int = 0
    """Number of new verdicts."""
    interrupted: bool = False

    @property
    def verdicts_changed(self) -> int:
        """Number of turns, over all trajectories, with a changed verdict."""
        return sum(replayed.verdicts_changed for replayed in self.trajectories)


def replay_all(request: ReplayRequest, db: str | None, say: Callable[[str], None]) -> Replays:
    """Replays the requested trajectories.

    Ctrl-C ends after the work in progress; saved verdicts remain.

    Raises InputError, StoreError, and errors of the tools.
    """
    with ExitStack() as stack:
        store = stack.enter_context(open_store(db, readonly=not request.rescore, create=False))
        rows = _rows(store, request)
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelwright-replay-"))
        )
        scratch = stack.enter_context(Store.open(folder / "replay.db"))
        evaluator = (
            stack.enter_context(_evaluator(request, say))
            if request.execute or request.rescore
            else None
        )
        queue = _ReplayQueue(store, scratch, request, evaluator, say, len(rows))
        results, interrupted = queue.run_all(rows, request.workers)
        return Replays(
            run=request.run or "", trajectories=tuple(results), executed=evaluator is not None,
            tools=evaluator.environment() if evaluator else None, saved=queue.saved, interrupted=interrupted,
        )  # fmt: skip


def _rows(store: Store, request: ReplayRequest) -> list[Trajectory]:
    chosen = candidate_filter(store, request.id, request.run)
    if request.run is not None:
        return store.trajectories(TrajectoryFilter(run=request.run), limit=None, newest=False)
    if chosen.trajectory_id is None:
        raise InputError("nothing to replay: give a trajectory's number, last, or --run NAME")
    return [store.trajectory(trajectory_id(store, str(chosen.trajectory_id)))]


def _evaluator(request: ReplayRequest, say: Callable[[str], None]) -> Evaluator:
    """Creates the evaluator without verdict cache: a cached verdict would be the old verdict."""
    from kernelwright.tools.evaluation.pipeline import Evaluator

    say("starting the tools")
    with defer_interrupts():
        import torch  # noqa: F401 (in the main thread, before others need it)

        return Evaluator(device=request.device, workers=request.workers)


class _ReplayQueue:
    """Queue of trajectories to replay, shared by several threads."""

    def __init__(
        self, store: Store, scratch: Store, request: ReplayRequest, evaluator: Evaluator | None,
        say: Callable[[str], None], count: int,
    ) -> None:  # fmt: skip
        self._store, self._scratch, self._request, self._evaluator = (
            store,
            scratch,
            request,
            evaluator,
        )
        self._say, self._count = say, count
        self._lock = threading.Lock()
        self._todo: list[Trajectory] = []
        self._done: dict[int, ReplayResult] = {}
        self._trouble: BaseException | None = None
        self._over = threading.Event()
        self.saved = 0

    def run_all(self, rows: Sequence[Trajectory], at_once: int) -> tuple[list[ReplayResult], bool]:
        """Replays all trajectories in order, and returns whether Ctrl-C was pressed.

        A second Ctrl-C ends immediately.
        """
        self._todo = list(reversed(rows))
        workers = WorkerThreads(self._next, self._do, self._over.set)
        interrupted = workers.run(min(at_once, len(rows)))
        if self._trouble is not None:
            raise self._trouble
        return [self._done[row.id] for row in rows if row.id in self._done], interrupted

    def _do(self, row: Trajectory) -> None:
        try:
            self._done[row.id] = self._replay_row(row)
        except KeyboardInterrupt:
            return
        except BaseException as error:
            with self._lock:
                self._trouble = self._trouble or error
            self._over.set()

    def _next(self) -> Trajectory | None:
        with self._lock:
            return self._todo.pop() if self._todo and not self._over.is_set() else None

    def _replay_row(self, row: Trajectory) -> ReplayResult:
        saved: list[int] = []

        def tell(doing: str) -> None:
            progress = f"{len(self._done)} of {self._count} done; " if self._count > 1 else ""
            self._say(f"{progress}trajectory {row.id} ({row.problem}): {doing}")

        def say(doing: str) -> None:
            """Reports progress between steps of the state machine, and stops there if requested:
            stopping within a verdict would leave processes behind.
            """
            if self._over.is_set():
                raise KeyboardInterrupt
            tell(doing)

        def keep(turn: Turn, report: Report) -> None:
            if self._request.rescore:
                saved.append(self._store.judge(turn.candidate_id, report))
                with self._lock:
                    self.saved += 1

        replayed = replay(
            self._store, row, self._scratch, lambda turns: self._judges(row, turns, keep, tell), say
        )
        if saved and replayed.best_candidate_id != row.best_id:
            self._store.put_best(row.id, replayed.best_candidate_id)
        return replayed.with_(rescored=len(saved))

    def _judges(
        self,
        row: Trajectory,
        turns: Sequence[Turn],
        keep: Callable[[Turn, Report], None],
        tell: Callable[[str], None],
    ) -> VerdictProvider:
        if self._evaluator is None:
            return StoredVerdicts(turns)
        from kernelwright.tools.evaluation.pipeline import Options

        settings = Settings.of(row)
        judging = RunJudge(
            self._evaluator,
            Options(
                targets=settings.targets, own_work=settings.own_work, train_mode=settings.train_mode
            ),
        )
        return FreshVerdicts(turns, row.id, judging, self._rescored_before, keep, tell)

    def _rescored_before(self, turn: Turn) -> bool:
        """Returns whether the current tools already rescored a turn, so that an interrupted
        rescoring of a run resumes.
        """
        if not (self._request.rescore and self._request.run) or self._evaluator is None:
            return False
        # More than one verdict: the latest is a rescoring and not the run's own verdict.
        same = turn.fingerprint == fingerprint(self._evaluator.environment())
        return same and len(self._store.verdicts(turn.candidate_id)) > 1


class RescoredRewards(Value):
    """Recomputed rewards of a formula.

    Each reward is stored with its verdict, which names the evaluator; rewards of earlier verdicts
    remain.
    """

    formula: str
    """Name and version of the formula: `default@1`."""
    stored: int = 0
    """Number of new rewards."""
    note: str = ""
    """Reason why rewards could not be computed."""


def rescore_rewards(
    database: str, run: str | None, formulas: Sequence[str]
) -> tuple[RescoredRewards, ...]:
    """Scores the verdicts in force by every formula in use.

    Verdicts already scored are skipped.
    """
    with open_store(database, create=False) as store:
        return tuple(_rescore_formula(store, run, formula) for formula in formulas)


def _rescore_formula(store: Store, run: str | None, formula: str) -> RescoredRewards:
    name, _, version = formula.partition("@")
    # `name@version+digest`: the weights of the formula come from a user's file.
    if "+" in version:
        again = f"rl rewards --db {store.where} --reward FILE.json"
        return RescoredRewards(
            formula=formula, note=f"its weights are in a file of yours: {again} computes them"
        )
    try:
        summary = store_rewards(store, find_formula(name), CandidateFilter(run=run))
    except InputError as error:
        return RescoredRewards(formula=formula, note=str(error))
    return RescoredRewards(formula=summary.formula, stored=summary.stored)

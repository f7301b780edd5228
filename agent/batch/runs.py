"""Many runs at once over the lanes.

What a batch has to do follows from the store, so the same command goes on where it stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kernelwright.agent.judging.lanes import Lanes, LaneUsage
from kernelwright.agent.loop.run import Run, pause_owned
from kernelwright.agent.loop.run_verdicts import RunJudge, Tunes
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import PAUSING_REASONS, StopReason
from kernelwright.agent.runtime.worker_threads import WorkerThreads
from kernelwright.policies.base import Policy, Value
from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.database import Store
from kernelwright.store.models import BatchRun, Trajectory
from kernelwright.store.records import TrajectoryFilter
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import InfrastructureError

MAX_STOPPED_RUNS_IN_A_ROW = 5
"""Runs that this machine's trouble may stop, with none that ends between them, before the whole batch stops."""
MAX_PAUSE_REASONS = 5
"""Different reasons that are kept of why runs are paused."""
SEED_STEP = 1_000_003
"""The difference between the seeds of a problem's samples."""


class Job(NamedTuple):
    """One run of a batch: a problem and the number of the sample, counted from 0."""

    problem: Problem
    sample: int


class RunActivity(NamedTuple):
    """The current activity of one run, for displays."""

    problem: str
    sample: int
    turn: int
    state: str
    doing: str
    best: float | None


class BatchStatus(Value):
    """The progress of a batch."""

    jobs: int
    done: int
    """Finished, earlier sittings among them."""
    here: int
    """Finished in this sitting."""
    paused: int
    paused_because: tuple[str, ...] = ()
    """The reasons why runs of this call are paused, one line each, the first ones only; Ctrl-C is not among them."""
    not_judged: int = 0
    """Finished here because the problem cannot be judged: the reference fails, or is random."""
    busy_elsewhere: int
    """Runs that another process works on."""
    correct: int
    faster: int | None
    """Correct and faster than eager PyTorch; None without a GPU, where nothing is timed."""
    seconds: float
    lanes: tuple[LaneUsage, ...] = ()


def list_jobs(problems: Sequence[Problem], samples: int) -> list[Job]:
    """Each problem's first sample before any second, so that a batch that is stopped early has seen them all."""
    return [Job(problem, sample) for sample in range(samples) for problem in problems]


class Batch:
    """`run` returns when all is done, or paused; the first trouble that concerns every run is raised."""

    def __init__(
        self, store: Store, run: BatchRun, jobs: Iterable[Job], policy: Policy, judging: RunJudge, settings: Settings,
        lanes: Lanes, program: str = "", first: Callable[[Policy, Problem, Settings], Policy] | None = None,
        tuner: Tunes | None = None, give_up: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """first: the policy with the answer to a problem's first question from elsewhere, as the settings say.

        tuner: answers the turns of TUNE. give_up: ends the answers and drafts under way that are
        made here; called after Ctrl-C, ten times a second.
        """
        self._first, self._tuner, self._give_up = first, tuner, give_up
        self._store, self._run, self._settings, self._lanes = store, run, settings, lanes
        self._policy, self._judging, self._program = policy, judging, program
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._jobs = list(jobs)
        self._todo = self._unfinished()
        self._before = len(self._jobs) - len(self._todo)
        self._todo.reverse()
        self._doing: dict[int, RunActivity] = {}
        self._reasons: list[StopReason] = []
        self._paused_because: list[str] = []
        self._busy = self._correct = self._faster = self._troubled = 0
        self._trouble: BaseException | None = None

    def _unfinished(self) -> list[Job]:
        done = self._store.trajectories(
            TrajectoryFilter(run=self._run.name, finished=True), limit=None
        )
        known = {(row.key, row.sample) for row in done}
        return [
            job
            for job in self._jobs
            if (self._settings.start(job.problem).key, job.sample) not in known
        ]

    @property
    def left(self) -> int:
        """Returns the number of runs that have not begun."""
        return len(self._todo)

    @property
    def standing(self) -> BatchStatus:
        """Returns the progress of the batch: runs finished, paused and correct, seconds, and the traffic at
        its gates.
        """
        with self._lock:
            paused = sum(reason in PAUSING_REASONS for reason in self._reasons)
            here = len(self._reasons) - paused
            faster = None if self._settings.device == "cpu" else self._faster
            return BatchStatus(
                jobs=len(self._jobs), done=self._before + here, here=here, paused=paused,
                paused_because=tuple(self._paused_because),
                not_judged=self._reasons.count(StopReason.PROBLEM), busy_elsewhere=self._busy,
                correct=self._correct, faster=faster, seconds=time.monotonic() - self._started,
                lanes=tuple(gate.traffic for gate in self._lanes.gates),
            )  # fmt: skip

    @property
    def pausing(self) -> bool:
        """Whether the batch begins no more runs and waits for those that are under way."""
        return self._closed()

    @property
    def doing(self) -> list[RunActivity]:
        """Returns the activity of each run that is under way."""
        with self._lock:
            return list(self._doing.values())

    def run(self, at_once: int, watch: Callable[[Batch], None] = lambda batch: None) -> BatchStatus:
        """Ctrl-C gives up the answers and drafts that are made here, lets what else is inside a lane end, then pauses;
        a second one leaves at once, and nothing that was finished is lost.
        """
        interrupted = threading.Event()

        def pause() -> None:
            interrupted.set()
            self._lanes.close(KeyboardInterrupt())

        def look() -> None:
            if interrupted.is_set():
                self._give_up()
            watch(self)

        if WorkerThreads(self._next, self._do, pause).run(min(at_once, len(self._todo)), look):
            raise KeyboardInterrupt
        if self._trouble is not None:
            raise self._trouble
        self._lanes.cpu.check()
        return self.standing

    def _do(self, job: Job) -> None:
        try:
            self._one(job)
        except StoreError as error:
            if error.trouble is not StoreTrouble.BUSY:
                self._stop(error)
            with self._lock:
                self._busy += error.trouble is StoreTrouble.BUSY
        except BaseException as error:
            self._stop(error)

    def _next(self) -> Job | None:
        with self._lock:
            return (
                self._todo.pop()
                if self._todo and self._trouble is None and not self._closed()
                else None
            )

    def _closed(self) -> bool:
        try:
            self._lanes.cpu.check()
        except BaseException:
            return True
        return False

    def _one(self, job: Job) -> None:
        trajectory = self._store.begin(
            self._settings.start(job.problem, self._program), run_id=self._run.id, sample=job.sample
        )
        try:
            run = self._opened(job, trajectory)
            reason = run.run()
        except BaseException as error:
            pause_owned(self._store, trajectory.id, error)
            raise
        finally:
            with self._lock:
                self._doing.pop(trajectory.id, None)
        self._count(run, reason)

    def _opened(self, job: Job, trajectory: Trajectory) -> Run:
        settings = self._settings.with_(repeated=job.sample > 0)
        if settings.seed is not None:
            settings = settings.with_(seed=settings.seed + SEED_STEP * job.sample)

        def watch(run: Run, doing: str) -> None:
            best = run.best.speedup if run.best else None
            with self._lock:
                self._doing[trajectory.id] = RunActivity(
                    job.problem.name,
                    job.sample,
                    len(run.attempts) + 1,
                    run.state.value,
                    doing,
                    best,
                )

        policy = self._first(self._policy, job.problem, settings) if self._first else self._policy
        return Run(
            self._store,
            trajectory,
            job.problem,
            policy,
            self._judging,
            settings,
            watch,
            tuner=self._tuner,
        )

    def _count(self, run: Run, reason: StopReason) -> None:
        with self._lock:
            self._reasons.append(reason)
            self._note_pause(reason, run.message)
            self._correct += run.best is not None
            self._faster += run.best is not None and (run.best.speedup or 0.0) > 1.0
            self._troubled = self._troubled + 1 if reason is StopReason.INFRASTRUCTURE else 0
            hopeless = self._troubled >= MAX_STOPPED_RUNS_IN_A_ROW
        if hopeless:
            self._stop(
                InfrastructureError(
                    f"{MAX_STOPPED_RUNS_IN_A_ROW} runs in a row were stopped: {run.message}"
                )
            )

    def _note_pause(self, reason: StopReason, message: str) -> None:
        if reason not in PAUSING_REASONS or reason is StopReason.INTERRUPTED:
            return
        line = f"{reason.value}: {message}"
        if line not in self._paused_because and len(self._paused_because) < MAX_PAUSE_REASONS:
            self._paused_because.append(line)

    def _stop(self, error: BaseException) -> None:
        """Stops the batch; the first error is the one that is reported."""
        with self._lock:
            self._trouble = self._trouble or error
        self._lanes.close(error if isinstance(error, InfrastructureError) else KeyboardInterrupt())

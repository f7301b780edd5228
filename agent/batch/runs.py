"""Runs many trajectories at once over the lanes.

The remaining jobs of a batch follow from the store, so the same command continues where the last
call stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kernelwright.agent.judging.lanes import Lanes, LaneUsage
from kernelwright.agent.loop.run import Run, pause_owned
from kernelwright.agent.loop.run_verdicts import Participants, RunJudge, Tunes
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
"""Number of consecutive runs that this machine's trouble may stop before the whole batch stops."""
MAX_PAUSE_REASONS = 5
"""Maximum number of different pause reasons that are listed."""
SAMPLE_SEED_STEP = 1_000_003
"""Difference between the seeds of a problem's samples."""


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
    """Finished runs, earlier calls included."""
    here: int
    """Runs finished in this call."""
    paused: int
    paused_because: tuple[str, ...] = ()
    """Reasons why runs of this call are paused, one line each, limited in number; without Ctrl-C.
    """
    not_judged: int = 0
    """Runs finished in this call because the problem cannot be judged: the reference fails, or is
    random.
    """
    busy_elsewhere: int
    """Number of runs that another process works on."""
    correct: int
    faster: int | None
    """Runs with a correct kernel faster than eager PyTorch; None without a GPU: nothing is timed.
    """
    seconds: float
    lanes: tuple[LaneUsage, ...] = ()


def list_jobs(problems: Sequence[Problem], samples: int) -> list[Job]:
    """Lists each problem's first sample before any second sample, so a batch that stops early has
    seen all problems.
    """
    return [Job(problem, sample) for sample in range(samples) for problem in problems]


class Batch:
    """Many runs over shared lanes. Raises the first error that concerns every run."""

    def __init__(
        self, store: Store, run: BatchRun, jobs: Iterable[Job], policy: Policy, judging: RunJudge, settings: Settings,
        lanes: Lanes, program: str = "", first: Callable[[Policy, Problem, Settings], Policy] | None = None,
        tuner: Tunes | None = None, give_up: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """first: returns the policy with its first answer to a problem from a draft, as the
        settings say.

        tuner: answers the turns of TUNE. give_up: ends the answers and drafts under way in this
        process; called ten times a second after Ctrl-C.
        """
        self._first, self._tuner, self._give_up = first, tuner, give_up
        self._store, self._run, self._settings, self._lanes = store, run, settings, lanes
        self._policy, self._judging, self._program = policy, judging, program
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._jobs = list(jobs)
        self._todo = self._unfinished()
        self._finished_before = len(self._jobs) - len(self._todo)
        self._todo.reverse()  # jobs are popped from the end
        self._doing: dict[int, RunActivity] = {}
        self._reasons: list[StopReason] = []
        self._paused_because: list[str] = []
        self._busy = self._correct = self._faster = self._stopped_in_a_row = 0
        self._trouble: BaseException | None = None

    def _unfinished(self) -> list[Job]:
        done = self._store.trajectories(
            TrajectoryFilter(run=self._run.name, finished=True), limit=None
        )
        finished = {(row.key, row.sample) for row in done}
        unfinished = []
        for job in self._jobs:
            key = self._settings.start(job.problem).key
            if (key, job.sample) not in finished:
                unfinished.append(job)
        return unfinished

    @property
    def standing(self) -> BatchStatus:
        """Returns the progress of the batch: finished, paused and correct runs, seconds, and the
        use of its lanes.
        """
        with self._lock:
            paused = sum(reason in PAUSING_REASONS for reason in self._reasons)
            finished_now = len(self._reasons) - paused
            faster = None if self._settings.device == "cpu" else self._faster
            return BatchStatus(
                jobs=len(self._jobs), done=self._finished_before + finished_now, here=finished_now, paused=paused,
                paused_because=tuple(self._paused_because),
                not_judged=self._reasons.count(StopReason.PROBLEM), busy_elsewhere=self._busy,
                correct=self._correct, faster=faster, seconds=time.monotonic() - self._started,
                lanes=tuple(gate.traffic for gate in self._lanes.gates),
            )  # fmt: skip

    @property
    def pausing(self) -> bool:
        """Whether the batch starts no more runs and waits for those under way."""
        return self._closed()

    @property
    def doing(self) -> list[RunActivity]:
        """Returns the activity of each run under way."""
        with self._lock:
            return list(self._doing.values())

    def run(self, at_once: int, watch: Callable[[Batch], None] = lambda batch: None) -> BatchStatus:
        """Runs the jobs until all are done or paused.

        Ctrl-C ends answers and drafts of this process, waits for the other work inside the lanes,
        then pauses; a second Ctrl-C leaves at once, and no finished work is lost.
        """
        interrupted = threading.Event()

        def pause() -> None:
            interrupted.set()
            self._lanes.close(KeyboardInterrupt())

        def refresh() -> None:
            if interrupted.is_set():
                self._give_up()
            watch(self)

        # True after Ctrl-C, once every open run is paused.
        if WorkerThreads(self._next, self._do, pause).run(min(at_once, len(self._todo)), refresh):
            raise KeyboardInterrupt
        if self._trouble is not None:
            raise self._trouble
        self._lanes.cpu.check()
        return self.standing

    def _do(self, job: Job) -> None:
        try:
            self._run_job(job)
        except StoreError as error:
            # Busy: another process works on this trajectory, which is left there.
            if error.trouble is not StoreTrouble.BUSY:
                self._stop(error)
            with self._lock:
                self._busy += error.trouble is StoreTrouble.BUSY
        except BaseException as error:
            self._stop(error)

    def _next(self) -> Job | None:
        with self._lock:
            if not self._todo or self._trouble is not None or self._closed():
                return None
            return self._todo.pop()

    def _closed(self) -> bool:
        try:
            self._lanes.cpu.check()
        except BaseException:
            return True
        return False

    def _run_job(self, job: Job) -> None:
        trajectory = self._store.begin(
            self._settings.start(job.problem, self._program), run_id=self._run.id, sample=job.sample
        )
        try:
            run = self._open_run(job, trajectory)
            reason = run.run()
        except BaseException as error:
            pause_owned(self._store, trajectory.id, error)
            raise
        finally:
            with self._lock:
                self._doing.pop(trajectory.id, None)
        self._count(run, reason)

    def _open_run(self, job: Job, trajectory: Trajectory) -> Run:
        settings = self._settings.with_(repeated=job.sample > 0)
        if settings.seed is not None:
            # Equal seeds would give equal samples of a problem.
            settings = settings.with_(seed=settings.seed + SAMPLE_SEED_STEP * job.sample)

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
            Participants(policy, self._judging, tuner=self._tuner),
            settings,
            watch,
        )

    def _count(self, run: Run, reason: StopReason) -> None:
        with self._lock:
            self._reasons.append(reason)
            self._note_pause(reason, run.message)
            self._correct += run.best is not None
            self._faster += run.best is not None and (run.best.speedup or 0.0) > 1.0
            stopped = reason is StopReason.INFRASTRUCTURE
            self._stopped_in_a_row = self._stopped_in_a_row + 1 if stopped else 0
            hopeless = self._stopped_in_a_row >= MAX_STOPPED_RUNS_IN_A_ROW
        if hopeless:
            count = MAX_STOPPED_RUNS_IN_A_ROW
            self._stop(InfrastructureError(f"{count} runs in a row were stopped: {run.message}"))

    def _note_pause(self, reason: StopReason, message: str) -> None:
        if reason not in PAUSING_REASONS or reason is StopReason.INTERRUPTED:
            return
        line = f"{reason.value}: {message}"
        if line not in self._paused_because and len(self._paused_because) < MAX_PAUSE_REASONS:
            self._paused_because.append(line)

    def _stop(self, error: BaseException) -> None:
        """Stops the batch; the first error is reported."""
        with self._lock:
            self._trouble = self._trouble or error
        # Other runs pause: with this machine's failure as reason, or as after Ctrl-C.
        self._lanes.close(error if isinstance(error, InfrastructureError) else KeyboardInterrupt())

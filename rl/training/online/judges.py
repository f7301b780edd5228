"""Judges in separate processes, started once: verdicts on many cores while this process samples
and trains.

Half the work of a verdict is Python (references, draws, comparisons), which threads of a single
process would do one at a time.
"""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.closing_context import ClosingContext
from kernelwright.policies.base import Value
from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.trials import reference_trials
from kernelwright.tools.reference_trials.worker import TrialOutcome
from kernelwright.tools.report import InfrastructureError, Report
from kernelwright.tools.source import candidate_hash
from kernelwright.worker_process import end_with_parent

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Options

MAX_KEPT_VERDICTS = 20_000
"""Number of verdicts in memory, the newest."""
MAX_JUDGES_ON_A_GPU = 6
"""Largest number of judging processes on one GPU."""
MAX_REPEATS = 2
"""Number of retries of a verdict after the death of its judge."""

_judge: Any = None
"""The evaluator of a judging process."""
_inside: Path
"""Folder of notes in a judging process: a file for each candidate under judgement."""


class PendingVerdict(NamedTuple):
    """A verdict under way and its number. A file named by the number exists while a judge works
    on the verdict.
    """

    future: Future[Any]
    number: int


class JudgingTotals(Value):
    """Counts of the judges' work so far."""

    requested: int = 0
    judged: int = 0
    """Number of computed verdicts; the others were cached, or already under way for another
    caller.
    """
    seconds: float = 0.0
    """Seconds of judging, summed over all processes."""


class TrainingJudges(ClosingContext):
    """A pool of judging processes with the interface of a single evaluator. A context manager.

    Equal programs for the same problem are judged once, also during the first verdict.
    """

    def __init__(
        self, device: str, workers: int, cache: Path | None = None, gpus: Sequence[str] = ()
    ) -> None:
        """Starts the processes. `gpus`: as named by CUDA_VISIBLE_DEVICES; each process sees one
        of them, as `device`.
        """
        # On a GPU verdicts take turns; a few processes compile and wait, more would only hold contexts.
        most = MAX_JUDGES_ON_A_GPU * max(1, len(gpus))
        self._device = device
        self._workers = workers if device == "cpu" else min(workers, most)
        self._cache = cache
        self._gpus = tuple(gpus)
        self._lock = threading.Lock()
        self._verdicts: OrderedDict[tuple[str, str, str], PendingVerdict] = OrderedDict()
        self._folder = TemporaryDirectory(prefix="kernelwright-judges-")
        self._fallen: set[int] = set()
        """Candidates that a judge was judging when it died."""
        self._barren = 0
        """Times in a row that judges died over nothing: they cannot begin."""
        self._requests = 0
        self._computed = 0
        self._sent = 0
        self._seconds = 0.0
        self._pool = self._started()

    def _started(self) -> ProcessPoolExecutor:
        # Forked from one process that has imported torch and triton and does nothing else: they are read from the disk
        # once, not once for each.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            [
                "torch",
                "triton",
                "kernelwright.tools.evaluation.pipeline",
                "kernelwright.tools.judging.judge",
            ]
        )
        _begin_to_fork()
        return ProcessPoolExecutor(
            self._workers,
            mp_context=context,
            initializer=_begin,
            initargs=(
                self._device,
                self._cache,
                Path(self._folder.name),
                -(-self._workers // max(1, len(self._gpus))),
                self._gpus,
                context.Value("i", 0),
            ),
        )

    @property
    def workers(self) -> int:
        """The number of judging processes."""
        return self._workers

    @property
    def figures(self) -> JudgingTotals:
        """Returns the totals of all verdicts so far."""
        with self._lock:
            return JudgingTotals(
                requested=self._requests, judged=self._computed, seconds=self._seconds
            )

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """Returns the report on a candidate. Raises ProblemError and InfrastructureError as the
        tools do.
        """
        report = self._ask(problem, source, options)
        return report if report.problem == problem.name else report.with_(problem=problem.name)

    def _ask(self, problem: Problem, source: str, options: Options | None) -> Report:
        key = (
            problem.hash,
            candidate_hash(source),
            "" if options is None else options.model_dump_json(),
        )
        deaths = 0
        while True:
            waiting, first = self._waiting(key, problem, source, options)
            try:
                seconds, report = waiting.future.result()
            except BrokenProcessPool as error:
                self._restart(waiting.future)
                # Only a candidate under judgement counts as a cause of the crash.
                deaths += waiting.number in self._fallen
                if deaths > MAX_REPEATS:
                    raise InfrastructureError(
                        "a judging process died three times on one candidate: see `agent doctor`, or use "
                        "fewer --workers"
                    ) from error
                if self._barren > MAX_REPEATS:
                    raise InfrastructureError(
                        "judging processes end before they judge anything: see their output above, and `agent doctor`"
                    ) from error
                continue
            except BaseException:
                self._forget(key, waiting)
                raise
            if first:
                self._count(seconds, report)
            # Faults of a loaded machine are not remembered: the next request judges again.
            if report.failure is not None and _may_pass(report):
                self._forget(key, waiting)
            return report if first else report.with_(cached=True)

    def _waiting(
        self, key: tuple[str, str, str], problem: Problem, source: str, options: Options | None
    ) -> tuple[PendingVerdict, bool]:
        with self._lock:
            self._requests += 1
            if (pending := self._verdicts.get(key)) is not None:
                self._verdicts.move_to_end(key)
                return pending, False
            try:
                waiting = self._submitted(problem, source, options)
            except BrokenProcessPool:
                self._renew()
                waiting = self._submitted(problem, source, options)
            self._verdicts[key] = waiting
            while len(self._verdicts) > MAX_KEPT_VERDICTS:
                self._verdicts.popitem(last=False)
            return waiting, True

    def _submitted(self, problem: Problem, source: str, options: Options | None) -> PendingVerdict:
        self._sent += 1
        in_training = options is not None and options.train_mode
        # The trial of the reference is passed on, so each process need not repeat it.
        reference = reference_trials().known_outcome(problem, train_mode=in_training)
        work = self._pool.submit(_evaluate, self._sent, problem, source, options, reference)
        return PendingVerdict(work, self._sent)

    def _forget(self, key: tuple[str, str, str], waiting: PendingVerdict) -> None:
        with self._lock:
            if self._verdicts.get(key) == waiting:
                del self._verdicts[key]

    def _count(self, seconds: float, report: Report) -> None:
        with self._lock:
            self._computed += not report.cached
            self._barren = 0
            self._seconds += seconds

    def _restart(self, broken: Future[Any]) -> None:
        """Restarts the judges once for all waiting callers."""
        with self._lock:
            if any(waiting.future is broken for waiting in self._verdicts.values()):
                self._renew()

    def _renew(self) -> None:
        """Starts new processes and keeps finished verdicts. The caller holds the lock.

        Only candidates with a note were under judgement at the crash; waiting candidates are not
        blamed.
        """
        self._verdicts = OrderedDict(
            (k, w) for k, w in self._verdicts.items() if _is_judged(w.future)
        )
        notes = list(Path(self._folder.name).iterdir())
        self._barren = 0 if notes else self._barren + 1
        for note in notes:
            self._fallen.add(int(note.name))
            note.unlink(missing_ok=True)
        old, self._pool = self._pool, self._started()
        old.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Waits for verdicts under way, cancels waiting ones, ends the processes and removes
        their folder.
        """
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._folder.cleanup()


def _begin_to_fork() -> None:
    """Starts the fork server. Raises InfrastructureError if its socket's path in the temporary
    folder is too long.
    """
    from multiprocessing.forkserver import ensure_running

    try:
        ensure_running()
    except OSError as error:
        raise InfrastructureError(
            f"judging processes cannot begin in {gettempdir()} ({error}): set TMPDIR to a folder with a shorter path"
        ) from error


def _may_pass(report: Report) -> bool:
    """Returns whether a report's fault may be due to a loaded machine; such a verdict is computed
    again on request.
    """
    from kernelwright.tools.verdict_cache import UNCACHED_FAULTS

    return report.failure is not None and report.failure.fault in UNCACHED_FAULTS


def _is_judged(future: Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _begin(
    device: str, cache: Path | None, inside: Path, sharers: int, gpus: Sequence[str], begun: Any
) -> None:
    """Initializes a judging process with one evaluator for its lifetime; the parent handles
    Ctrl-C, and the parent's death ends the process.

    `begun`: a shared count of started processes, which distributes the GPUs.
    """
    import os
    import signal
    from multiprocessing.util import Finalize

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if gpus:
        # Processes take the GPUs in turn.
        with begun.get_lock():
            number, begun.value = begun.value, begun.value + 1
        # CUDA reads the variable at its first use, which is later.
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    end_with_parent(_close)
    import torch

    from kernelwright.tools.evaluation.pipeline import Evaluator

    torch.set_num_threads(1)
    global _judge, _inside
    _inside = inside
    _judge = Evaluator(device=device, workers=1, cache_dir=cache, sharers=sharers)
    Finalize(None, _judge.close, exitpriority=10)  # atexit is not for such a process


def _close() -> None:
    if _judge is not None:
        _judge.close()


def _evaluate(
    number: int,
    problem: Problem,
    source: str,
    options: Options | None,
    reference: TrialOutcome | None,
) -> tuple[float, Report]:
    """Judges a candidate in a judging process. Returns the seconds and the report.

    reference: outcome of the training's own trial of the reference; None: this process tries the
    reference.
    """
    started, note = time.monotonic(), _inside / str(number)
    note.touch()
    if reference is not None:
        in_training = options is not None and options.train_mode
        reference_trials().remember(problem, reference, train_mode=in_training)
    try:
        report = _judge.evaluate(problem, source, options)
    except Exception as error:
        raise _sendable(error) from None
    finally:
        note.unlink(missing_ok=True)
    return time.monotonic() - started, report


def _sendable(error: Exception) -> Exception:
    """Returns the error, or a RuntimeError with its text if the error cannot be pickled: a
    failure to unpickle would break the pool for all callers.
    """
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error

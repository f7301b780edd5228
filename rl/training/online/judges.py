"""Judges in processes of their own, started once: verdicts on many cores, while this process samples and trains.

A verdict is half this side's work (references, draws, comparisons), which threads of one process would do one after the
other.
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
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

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
"""Verdicts kept in memory, the newest."""
MAX_JUDGES_ON_A_GPU = 6
"""Largest number of judging processes on one GPU."""
MAX_REPEATS = 2
"""Times that a verdict is asked for again when a judge has died over it."""

_judge: Any = None
"""The evaluator that a judging process holds."""
_inside: Path
"""The folder where a judging process writes which candidate it is judging."""


class PendingVerdict(NamedTuple):
    """A verdict on its way, and its number: of what a judge is over there is a file of that name."""

    future: Future[Any]
    number: int


class JudgingTotals(Value):
    """Counts of the judges' work so far."""

    asked: int = 0
    judged: int = 0
    """Number of verdicts that were computed: the others were known, or were under way for another caller."""
    seconds: float = 0.0
    """Seconds of judging, summed over all processes."""


class TrainingJudges:
    """Judges that a run sees as one evaluator.

    Equal programs for one problem are judged once, also while the first is still at work. A context manager.
    """

    def __init__(
        self, device: str, workers: int, cache: Path | None = None, gpus: Sequence[str] = ()
    ) -> None:
        """`gpus`: as CUDA_VISIBLE_DEVICES names them; each process is shown one of them, which is `device` there."""
        # On a GPU verdicts take turns; a few processes compile and wait, more would only hold contexts.
        most = MAX_JUDGES_ON_A_GPU * max(1, len(gpus))
        self._device, self._workers, self._cache = (
            device,
            min(workers, most) if device != "cpu" else workers,
            cache,
        )
        self._gpus = tuple(gpus)
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str, str], PendingVerdict] = OrderedDict()
        self._folder = TemporaryDirectory(prefix="kernelwright-judges-")
        self._fallen: set[int] = set()
        """Candidates that a judge was judging when it died."""
        self._barren = 0
        """Times in a row that judges died over nothing: they cannot begin."""
        self._asked = self._really = self._sent = 0
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
            self._workers, mp_context=context, initializer=_begin,
            initargs=(
                self._device, self._cache, Path(self._folder.name), -(-self._workers // max(1, len(self._gpus))),
                self._gpus, context.Value("i", 0),
            ),
        )  # fmt: skip

    @property
    def workers(self) -> int:
        """The number of judge processes."""
        return self._workers

    @property
    def figures(self) -> JudgingTotals:
        """The totals so far."""
        with self._lock:
            return JudgingTotals(asked=self._asked, judged=self._really, seconds=self._seconds)

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """Raises ProblemError and InfrastructureError as the tools do."""
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
            if report.failure is not None and _may_pass(report):
                self._forget(key, waiting)
            return report if first else report.with_(cached=True)

    def _waiting(
        self, key: tuple[str, str, str], problem: Problem, source: str, options: Options | None
    ) -> tuple[PendingVerdict, bool]:
        with self._lock:
            self._asked += 1
            if (known := self._known.get(key)) is not None:
                self._known.move_to_end(key)
                return known, False
            try:
                waiting = self._submitted(problem, source, options)
            except BrokenProcessPool:
                self._renew()
                waiting = self._submitted(problem, source, options)
            self._known[key] = waiting
            while len(self._known) > MAX_KEPT_VERDICTS:
                self._known.popitem(last=False)
            return waiting, True

    def _submitted(self, problem: Problem, source: str, options: Options | None) -> PendingVerdict:
        self._sent += 1
        in_training = options is not None and options.train_mode
        reference = reference_trials().known_outcome(problem, train_mode=in_training)
        work = self._pool.submit(_evaluate, self._sent, problem, source, options, reference)
        return PendingVerdict(work, self._sent)

    def _forget(self, key: tuple[str, str, str], waiting: PendingVerdict) -> None:
        with self._lock:
            if self._known.get(key) == waiting:
                del self._known[key]

    def _count(self, seconds: float, report: Report) -> None:
        with self._lock:
            self._really += not report.cached
            self._barren = 0
            self._seconds += seconds

    def _restart(self, broken: Future[Any]) -> None:
        """Restarts the judges once for all who waited."""
        with self._lock:
            if any(waiting.future is broken for waiting in self._known.values()):
                self._renew()

    def _renew(self) -> None:
        """New processes; what was judged stays known.

        Who only waited its turn is not held to have killed anybody. The lock is held.
        """
        self._known = OrderedDict((k, w) for k, w in self._known.items() if _is_judged(w.future))
        notes = list(Path(self._folder.name).iterdir())
        self._barren = 0 if notes else self._barren + 1
        for note in notes:
            self._fallen.add(int(note.name))
            note.unlink(missing_ok=True)
        old, self._pool = self._pool, self._started()
        old.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Waits for verdicts under way, drops those that wait, ends the processes and removes their folder."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._folder.cleanup()

    def __enter__(self) -> TrainingJudges:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _begin_to_fork() -> None:
    """Raises InfrastructureError where the fork server cannot begin: its socket lies in the temporary folder, and a
    socket's path is short.
    """
    from multiprocessing.forkserver import ensure_running

    try:
        ensure_running()
    except OSError as error:
        raise InfrastructureError(
            f"judging processes cannot begin in {gettempdir()} ({error}): set TMPDIR to a folder with a shorter path"
        ) from error


def _may_pass(report: Report) -> bool:
    """Faults that a loaded machine may cause are asked again."""
    from kernelwright.tools.verdict_cache import UNCACHED_FAULTS

    return report.failure is not None and report.failure.fault in UNCACHED_FAULTS


def _is_judged(future: Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _begin(
    device: str, cache: Path | None, inside: Path, sharers: int, gpus: Sequence[str], begun: Any
) -> None:
    """In a judging process: one evaluator, for as long as it lives; Ctrl-C is the parent's affair, and the parent's
    death is the end.

    `begun`: a shared count of the processes so far; they take the GPUs in turns.
    """
    import os
    import signal
    from multiprocessing.util import Finalize

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if gpus:
        with begun.get_lock():
            number, begun.value = begun.value, begun.value + 1
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[
            number % len(gpus)
        ]  # CUDA reads it when it is first asked for
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
    """reference: the outcome of a trial that the training made; None where this process is to try the reference."""
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
    """What cannot be put together again where it arrives would break the pool, and everyone's verdicts with it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error

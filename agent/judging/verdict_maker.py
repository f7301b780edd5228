"""Makes verdicts with one evaluator; shared by the judge process and the Ray actor."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from kernelwright.agent.judging.messages import (
    ErrorKind,
    VerdictError,
    VerdictReply,
    VerdictRequest,
)
from kernelwright.agent.judging.pool import JudgeEnded, JudgeLost, VerdictCancelled
from kernelwright.tools.faults import Fault, InfrastructureError
from kernelwright.tools.options import Lane
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.reference_trials.trials import reference_trials
from kernelwright.tools.reference_trials.worker import TrialOutcome
from kernelwright.tools.report import Report

if TYPE_CHECKING:
    from kernelwright.tools.judging.front import TracesAndCompiles

DEVICE_DEATH_MESSAGE = (
    "the reference ended the context of the GPU (a device-side assertion, or an access out of bounds): run it on a GPU "
    "with CUDA_LAUNCH_BLOCKING=1 to see where"
)
DEAD_MESSAGE = "an earlier verdict of this judge ended the context of its GPU"
WAITING_FOR_GPU = 4
"""Candidates past the CPU rungs allowed to wait for the GPU, so the GPU is never idle."""


def capacity_of(device: str, workers: int, elsewhere: int = 0) -> int:
    """Returns the number of verdicts in parallel of one judge.

    elsewhere: number of candidates traced and compiled outside of the judge. On a CPU these come in
    addition to the candidate interpreted by the judge, on a GPU in place of its own `workers`. 0:
    none. Examples: CPU 1; GPU with 2 workers 2 + WAITING_FOR_GPU = 6.
    """
    return 1 + elsewhere if device == "cpu" else (elsewhere or workers) + WAITING_FOR_GPU


class DeviceWatch:
    """Lanes of a GPU judge, with a check of the CUDA context at the end of each use of the GPU
    lane.

    References run in the judge's process. A device-side assertion of a reference (an index out of
    bounds, say) breaks the CUDA context for good: all later CUDA calls of this process fail.
    Candidates run in other processes.
    """

    def __init__(
        self, lanes: Callable[[Lane], AbstractContextManager[None]], is_dead: Callable[[], bool]
    ) -> None:
        """lanes: returns the context manager of a lane. is_dead: returns whether the CUDA context
        is broken.
        """
        self._lanes, self._look = lanes, is_dead
        self._culprit: int | None = None
        """Thread of the verdict that broke the CUDA context; None while the context works."""

    @property
    def is_dead(self) -> bool:
        """Whether the CUDA context of this process is broken."""
        return self._culprit is not None

    @property
    def is_dead_by_this_thread(self) -> bool:
        """Whether the verdict of this thread broke the CUDA context."""
        return self._culprit == threading.get_ident()

    @contextmanager
    def __call__(self, lane: Lane) -> Iterator[None]:
        """Holds a lane. Raises JudgeEnded for the GPU lane after the end of the CUDA context."""
        with self._lanes(lane):
            if lane is not Lane.GPU:
                yield
                return
            if self.is_dead:
                raise JudgeEnded(DEAD_MESSAGE)
            try:
                yield
            finally:
                # Still in the lane: no other verdict comes between the death and its discovery.
                if self._look():
                    self._culprit = threading.get_ident()


def is_context_dead(device: str) -> bool:
    """Returns whether the CUDA context of this process is broken. Waits for all work of the device."""
    import torch

    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


class VerdictMaker:
    """Holds an evaluator with its processes until `close`. Thread-safe."""

    def __init__(
        self, device: str, workers: int, sharers: int = 1,
        elsewhere: Callable[[str, str], TracesAndCompiles] | None = None,
    ) -> None:  # fmt: skip
        """Starts the evaluator. Raises InfrastructureError.

        device: `cpu` or `cuda:N`. workers: candidates on the CPU rungs at once. sharers: number of
        judges on this device. elsewhere: called with device and target, returns a remote front end
        for tracing and compiling; None: this process.
        """
        from kernelwright.agent.judging.lanes import Lanes
        from kernelwright.tools.evaluation.pipeline import Evaluator

        self._stopped: set[int] = set()
        self._lock = threading.Lock()
        kwargs: dict[str, Any] = {}
        if device == "cpu":
            _one_thread()
        if elsewhere is not None:
            kwargs["elsewhere"] = functools.partial(elsewhere, device)
        self._device_watch: DeviceWatch | None = None
        if device != "cpu":
            lanes = Lanes(1, workers, gpu=True)
            self._device_watch = DeviceWatch(lanes, functools.partial(is_context_dead, device))
            kwargs["lane"] = self._device_watch
        # Remote tracing lets several candidates wait here; one interpreter works at a time.
        elif elsewhere is not None:
            kwargs["lane"] = Lanes(1, 1, gpu=False)
        self._evaluator = Evaluator(device=device, workers=1, sharers=sharers, **kwargs)

    @property
    def evaluator(self) -> Any:
        """The evaluator, with warm processes."""
        return self._evaluator

    def make(self, ask: VerdictRequest, step: Callable[[str], None]) -> VerdictReply | VerdictError:
        """Returns the verdict or the reason for its failure. Never raises an Exception.

        `is_last` is set if this verdict broke the CUDA context. Later verdicts on the GPU then end
        with JudgeEnded, to be repeated by another process.
        """
        reply = self._verdict_or_error(ask, step)
        if self._device_watch is None or not self._device_watch.is_dead_by_this_thread:
            return reply
        if isinstance(reply, VerdictReply) and _is_unjudged(reply.report):
            return VerdictError(
                number=ask.number, error="problem", message=DEVICE_DEATH_MESSAGE, is_last=True
            )
        # The verdict itself stands, but the process can make no other.
        return reply.with_(is_last=True)

    def _verdict_or_error(
        self, ask: VerdictRequest, step: Callable[[str], None]
    ) -> VerdictReply | VerdictError:
        def say(doing: str) -> None:
            with self._lock:
                stopped = ask.number in self._stopped
            if stopped:
                raise VerdictCancelled("nobody wants this verdict any more")
            step(doing)

        try:
            say("beginning")
            if ask.reference is not None:
                reference_trials().remember(
                    ask.problem, ask.reference, train_mode=ask.options.train_mode
                )
            report = self._evaluator.evaluate(ask.problem, ask.source, ask.options, say)
            return VerdictReply(number=ask.number, report=report, reference=_new_outcome(ask))
        except Exception as error:
            return VerdictError(number=ask.number, error=error_kind(error), message=one_line(error))
        finally:
            with self._lock:
                self._stopped.discard(ask.number)

    def stop(self, number: int) -> None:
        """Ends the verdict with this number at its next step."""
        with self._lock:
            self._stopped.add(number)

    def close(self) -> None:
        """Closes the evaluator and its processes."""
        self._evaluator.close()


def _new_outcome(ask: VerdictRequest) -> TrialOutcome | None:
    """Returns the outcome of the reference's trial; None if known before, or if the reference
    fails.

    Failures are not shared: a loaded machine may be the cause, and their line numbers hold for one
    text only.
    """
    if ask.reference is not None:
        return None
    outcome = reference_trials().known_outcome(ask.problem, train_mode=ask.options.train_mode)
    return outcome if outcome is not None and not outcome.error else None


def _is_unjudged(report: Report) -> bool:
    return report.failure is not None and report.failure.fault is Fault.UNJUDGED


def error_kind(error: Exception) -> ErrorKind:
    """Returns the name of an exception for VerdictError."""
    match error:
        case VerdictCancelled():
            return "cancelled"
        case JudgeEnded():
            return "ended"
        case JudgeLost():
            return "lost"
        case ProblemError():
            return "problem"
        case InfrastructureError():
            return "infrastructure"
    return "internal"


def exception_of(trouble: VerdictError) -> Exception:
    """Returns the exception named by a VerdictError."""
    match trouble.error:
        case "cancelled":
            return VerdictCancelled(trouble.message)
        case "ended":
            return JudgeEnded(trouble.message)
        case "lost":
            return JudgeLost(trouble.message)
        case "problem":
            return ProblemError(trouble.message)
        case "infrastructure":
            return InfrastructureError(trouble.message)
    return InfrastructureError(f"internal error of a judge, please report it: {trouble.message}")


def one_line(error: Exception) -> str:
    """Returns an exception's message on one line, with the type in front for exceptions of other
    libraries.
    """
    text = " ".join(str(error).split())
    is_ours = isinstance(error, ProblemError | InfrastructureError)
    return (text if is_ours else f"{type(error).__name__}: {text}")[:2000]


def _one_thread() -> None:
    """Limits torch to one thread, because a CPU pool has as many judges as cores."""
    import torch

    torch.set_num_threads(1)

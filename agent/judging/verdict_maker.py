"""One evaluator, and the verdicts that it is at: what a judge process and a Ray actor have in common."""

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
"""Candidates through the CPU rungs that may wait for the GPU, so that it never waits for them."""


def capacity_of(device: str, workers: int, elsewhere: int = 0) -> int:
    """Verdicts that one judge makes side by side: on a CPU one; on a GPU those at the CPU rungs and those that wait.

    elsewhere: those that are traced and compiled outside of the judge, beside the one that it interprets on a CPU, and
    instead of its own `workers` on a GPU; 0 where none are.
    """
    return 1 + elsewhere if device == "cpu" else (elsewhere or workers) + WAITING_FOR_GPU


class DeviceWatch:
    """The lanes of a GPU judge, with a look at the device whenever a verdict leaves the GPU's lane.

    References run in the judge's process. A device-side assertion of one (an index out of bounds, say) ends the CUDA
    context for good: every later call to CUDA in this process fails, whoever makes it. Candidates run in other
    processes.
    """

    def __init__(
        self, lanes: Callable[[Lane], AbstractContextManager[None]], is_dead: Callable[[], bool]
    ) -> None:
        """lanes: gives the context manager of a lane. is_dead: says whether the device can be used no more."""
        self._lanes, self._look = lanes, is_dead
        self._culprit: int | None = None
        """The thread whose verdict ended the device; None while it lives."""

    @property
    def is_dead(self) -> bool:
        """Whether this process can use its GPU no more."""
        return self._culprit is not None

    @property
    def is_dead_by_this_thread(self) -> bool:
        """Whether the verdict of this thread has ended the device."""
        return self._culprit == threading.get_ident()

    @contextmanager
    def __call__(self, lane: Lane) -> Iterator[None]:
        """Holds a lane. Raises JudgeEnded for the GPU's lane once the device is dead."""
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
    """Returns whether CUDA in this process fails for good. Waits until the device has done everything."""
    import torch

    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


class VerdictMaker:
    """Holds an evaluator. Thread-safe; a context manager is not needed: `close` ends its processes."""

    def __init__(
        self, device: str, workers: int, sharers: int = 1,
        elsewhere: Callable[[str, str], TracesAndCompiles] | None = None,
    ) -> None:  # fmt: skip
        """device: `cpu` or `cuda:N`. workers: places at the CPU rungs. elsewhere: told the device and the target, gives
        what traces and compiles candidates outside of this process.

        Raises InfrastructureError where the tools cannot start.
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
        elif elsewhere is not None:
            kwargs["lane"] = Lanes(1, 1, gpu=False)
        self._evaluator = Evaluator(device=device, workers=1, sharers=sharers, **kwargs)

    @property
    def evaluator(self) -> Any:
        """The evaluator that makes the verdicts, warm."""
        return self._evaluator

    def make(self, ask: VerdictRequest, step: Callable[[str], None]) -> VerdictReply | VerdictError:
        """Returns the verdict, or why there is none. Never raises an Exception.

        The reply is the judge's last where this verdict has ended the device: whoever else comes to the device after
        that is told JudgeEnded, and is to be judged by another process.
        """
        reply = self._made(ask, step)
        if self._device_watch is None or not self._device_watch.is_dead_by_this_thread:
            return reply
        if isinstance(reply, VerdictReply) and _is_unjudged(reply.report):
            return VerdictError(
                number=ask.number, error="problem", message=DEVICE_DEATH_MESSAGE, is_last=True
            )
        return reply.with_(is_last=True)

    def _made(
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
        """The verdict of that number ends at its next step."""
        with self._lock:
            self._stopped.add(number)

    def close(self) -> None:
        """Closes the evaluator and its processes."""
        self._evaluator.close()


def _new_outcome(ask: VerdictRequest) -> TrialOutcome | None:
    """Returns the outcome of the trial that this verdict needed; None where it was known, or the reference fails.

    Failures are not told: a loaded machine may have caused them, and their lines are those of one text.
    """
    if ask.reference is not None:
        return None
    outcome = reference_trials().known_outcome(ask.problem, train_mode=ask.options.train_mode)
    return outcome if outcome is not None and not outcome.error else None


def _is_unjudged(report: Report) -> bool:
    return report.failure is not None and report.failure.fault is Fault.UNJUDGED


def error_kind(error: Exception) -> ErrorKind:
    """Returns the name under which an exception travels."""
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
    """The exception that a message of trouble stands for."""
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
    """Writes an exception's message, with the type of one that is not ours."""
    text = " ".join(str(error).split())
    known = isinstance(error, ProblemError | InfrastructureError)
    return (text if known else f"{type(error).__name__}: {text}")[:2000]


def _one_thread() -> None:
    """Limits torch to one thread: on a CPU there are as many judges as cores."""
    import torch

    torch.set_num_threads(1)

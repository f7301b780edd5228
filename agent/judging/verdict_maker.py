"""One evaluator, and the verdicts that it is at: what a judge process and a Ray actor have in common."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from kernelwright.agent.judging.messages import VerdictError, VerdictReply, VerdictRequest
from kernelwright.agent.judging.pool import JudgeLost, VerdictCancelled
from kernelwright.tools.faults import InfrastructureError
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.reference_trials.trials import reference_trials

if TYPE_CHECKING:
    from kernelwright.tools.judging.front import TracesAndCompiles

WAITING_FOR_GPU = 4
"""Candidates through the CPU rungs that may wait for the GPU, so that it never waits for them."""


def capacity_of(device: str, workers: int, elsewhere: int = 0) -> int:
    """Verdicts that one judge makes side by side: on a CPU one; on a GPU those at the CPU rungs and those that wait.

    elsewhere: those that are traced and compiled outside of the judge, beside the one that it interprets on a CPU, and
    instead of its own `workers` on a GPU; 0 where none are.
    """
    return 1 + elsewhere if device == "cpu" else (elsewhere or workers) + WAITING_FOR_GPU


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
        if device != "cpu" or elsewhere is not None:
            kwargs["lane"] = Lanes(1, workers if device != "cpu" else 1, gpu=device != "cpu")
        self._evaluator = Evaluator(device=device, workers=1, sharers=sharers, **kwargs)

    @property
    def evaluator(self) -> Any:
        """The evaluator that makes the verdicts, warm."""
        return self._evaluator

    def make(self, ask: VerdictRequest, step: Callable[[str], None]) -> VerdictReply | VerdictError:
        """The verdict, or why there is none. Never raises an Exception."""

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
            return VerdictReply(number=ask.number, report=report)
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


def error_kind(
    error: Exception,
) -> Literal["problem", "infrastructure", "cancelled", "lost", "internal"]:
    """The name under which an exception travels."""
    match error:
        case VerdictCancelled():
            return "cancelled"
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

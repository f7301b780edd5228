"""Interface of a pool of judges, between callers in need of verdicts and the processes behind them.

A pool never repeats a verdict. If a judge dies, the futures of its verdicts raise JudgeLost; the
caller decides on another attempt and records the lost attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from kernelwright.tools.faults import InfrastructureError, Value
from kernelwright.tools.report import Environment, Report

if TYPE_CHECKING:
    from kernelwright.agent.judging.placing import ReferenceMemory
    from kernelwright.tools.evaluation.pipeline import Options
    from kernelwright.tools.problem import Problem

MAX_VERDICT_ATTEMPTS = 3
"""Maximum number of attempts at a verdict whose judges die."""


class DeviceKind(StrEnum):
    """Kind of device for a verdict."""

    CPU = "cpu"
    CUDA = "cuda"


class JudgeLost(InfrastructureError):
    """The judge died, or its machine was lost, during this verdict."""


class JudgeEnded(JudgeLost):
    """The judge was ended because of another verdict. Says nothing about this candidate."""


class VerdictOverdue(InfrastructureError):
    """The verdict exceeded its caller's time limit, and its judge was ended."""


class VerdictCancelled(InfrastructureError):
    """The verdict was stopped because no caller waits for the result."""


class PoolClosed(InfrastructureError):
    """The pool was closed before the verdict was made."""


class JudgeState(Value):
    """Current state of a judge."""

    name: str
    """`cuda:0`, `cpu:1`, or `NODE/cuda:0` on Ray."""
    device: DeviceKind
    alive: bool
    ready: bool
    """True once the judge has started and takes verdicts; False during a restart."""
    at_work: int
    """Number of verdicts under way."""
    capacity: int
    """Number of verdicts in parallel."""
    started: float = 0.0
    """Start of the judge's process, in seconds since 1970."""
    restarts: int = 0
    """Number of replaced processes of this judge: dead, or ended because of a verdict."""


class JudgePool(Protocol):
    """Interface of `LocalPool` and `RayPool`."""

    memory: ReferenceMemory
    """Outcomes of the reference trials run by the judges."""

    @property
    def devices(self) -> Sequence[DeviceKind]:
        """Kinds of device, the default kind first."""
        ...

    def capacity(self, device: DeviceKind) -> int:
        """Returns the number of verdicts in parallel on a kind of device, with all judges alive."""
        ...

    def environment(self, device: DeviceKind) -> Environment:
        """Returns the environment of verdicts on a kind of device. Raises InfrastructureError."""
        ...

    def target(self, device: DeviceKind) -> str:
        """Returns the default compilation target of a kind of device, such as `sm_90`."""
        ...

    def judges(self) -> Sequence[JudgeState]:
        """Returns the state of every judge, lost judges included."""
        ...

    def submit(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] = ...,
        device: DeviceKind | None = None,
        began: Callable[[str], None] = ...,
        domain: str = "",
    ) -> Future[Report]:
        """Queues a verdict; a free judge of this kind begins the verdict.

        domain: owner of the reference. A reference runs in the judge's process and may change this
        process, so a judge serves a single domain; another process replaces the judge for another
        domain. The empty domain holds references trusted by the pool's owner.

        progress: called with each step, in a thread of the pool. began: called with the judge's
        name. The future raises ProblemError, InfrastructureError, JudgeLost, VerdictCancelled or
        PoolClosed.
        """
        ...

    def fits(self, device: DeviceKind, domain: str) -> bool:
        """Returns whether a verdict of this domain could begin now, without a new process."""
        ...

    def cancel(self, future: Future[Report]) -> None:
        """Stops a verdict at its next step; the future raises VerdictCancelled. No effect after the
        verdict's end.
        """
        ...

    def end(self, future: Future[Report], error: InfrastructureError) -> None:
        """Ends and replaces the judge of a verdict. The future of this verdict raises `error`.

        Other verdicts of this judge raise JudgeEnded. No effect after the verdict's end.
        """
        ...

    def close(self) -> None:
        """Ends every judge. Verdicts under way raise PoolClosed."""
        ...


def ignore(_: str) -> None:
    """Does nothing: default callback for steps and judge names."""

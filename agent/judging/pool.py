"""The seam between who asks for verdicts and where they are made.

A pool makes each verdict at most once: it never repeats one by itself. Where a judge dies over a verdict its future
raises JudgeLost, and whether to ask again is the caller's decision, to be recorded by the caller.
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
"""Largest number of attempts at one verdict when judges die over it."""


class DeviceKind(StrEnum):
    """The kind of device that a verdict is made on."""

    CPU = "cpu"
    CUDA = "cuda"


class JudgeLost(InfrastructureError):
    """The judge died, or its machine was lost, while it was at work on this verdict."""


class JudgeEnded(JudgeLost):
    """The judge was ended because of another one of its verdicts, which says nothing about this one."""


class VerdictOverdue(InfrastructureError):
    """The verdict took longer than its caller allows, and its judge was ended."""


class VerdictCancelled(InfrastructureError):
    """The verdict was stopped because no caller waits for it any more."""


class PoolClosed(InfrastructureError):
    """The pool was closed before the verdict was made."""


class JudgeState(Value):
    """One judge of a pool, at this moment."""

    name: str
    """`cuda:0`, `cpu:1`, or `NODE/cuda:0` on Ray."""
    device: DeviceKind
    alive: bool
    ready: bool
    """It has begun and takes verdicts: false of one that was started again a moment ago."""
    at_work: int
    """Verdicts that it is making."""
    capacity: int
    """Verdicts that it makes side by side."""
    started: float = 0.0
    """When its process was started, in seconds since 1970."""
    restarts: int = 0
    """Times that a judge of this name died, or was ended over a verdict, and another process took its place."""


class JudgePool(Protocol):
    """The interface of the places where verdicts are made: `LocalPool` and `RayPool`."""

    memory: ReferenceMemory
    """The references that its judges have tried."""

    @property
    def devices(self) -> Sequence[DeviceKind]:
        """The kinds that it has, the default one first."""
        ...

    def capacity(self, device: DeviceKind) -> int:
        """Verdicts of a kind that it makes at the same time, with all judges alive."""
        ...

    def environment(self, device: DeviceKind) -> Environment:
        """Returns the environment of verdicts of a kind. Raises InfrastructureError."""
        ...

    def target(self, device: DeviceKind) -> str:
        """Returns the target that is compiled for by default: `sm_90`."""
        ...

    def judges(self) -> Sequence[JudgeState]:
        """Every judge of the pool, and whether it is at work, idle or lost."""
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
        """Begins a verdict as soon as a judge of that kind is free; `began` is then told the judge's name.

        domain: whose reference it is. A reference runs in the judge's process and may change it, so that a judge that
        has begun a verdict of one domain makes those of no other: another process takes its place. The empty domain
        is that of references that the pool's owner trusts.

        `progress` is called with each step, in a thread of the pool. The future raises ProblemError,
        InfrastructureError, JudgeLost, VerdictCancelled or PoolClosed.
        """
        ...

    def fits(self, device: DeviceKind, domain: str) -> bool:
        """Whether a judge of that kind could begin a verdict of that domain now, without another process."""
        ...

    def cancel(self, future: Future[Report]) -> None:
        """Stops a verdict at its next step; its future raises VerdictCancelled. Nothing where it has ended."""
        ...

    def end(self, future: Future[Report], error: InfrastructureError) -> None:
        """Ends the judge that is at work on a verdict, whose future raises `error`; a new judge takes its place.

        The other verdicts of that judge raise JudgeEnded. Nothing where the verdict has ended.
        """
        ...

    def close(self) -> None:
        """Ends every judge. Verdicts under way raise PoolClosed."""
        ...


def ignore(_: str) -> None:
    """Ignores a step, or a judge's name; the default where a caller wants no reports."""

"""Values of the protocol about the service itself: judges, queue, health, problems. Imports no
torch.
"""

from __future__ import annotations

from enum import StrEnum

from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.agent.serving.wire import WireValue


class JudgeCondition(StrEnum):
    """Whether a judge takes verdicts."""

    READY = "ready"
    STARTING = "starting"
    DEAD = "dead"


class RunningVerdict(WireValue):
    """Verdict under way at a judge."""

    verdict_id: str | None
    """Id of the verdict; None for a verdict hidden from the client."""
    doing: str
    seconds: float
    """Seconds since the judge's start of the verdict."""


class JudgeEntry(WireValue):
    """State of a judge."""

    name: str
    device: DeviceKind
    state: JudgeCondition
    capacity: int
    started: float
    """When its process was started, in seconds since 1970."""
    restarts: int
    """Number of replaced processes of this judge since the server's start: dead, or ended because
    of a verdict.
    """
    verdicts: tuple[RunningVerdict, ...] = ()


class JudgeList(WireValue):
    """Every judge of the service."""

    judges: tuple[JudgeEntry, ...]


class DeviceQueue(WireValue):
    """Judges and verdicts of a kind of device."""

    device: DeviceKind
    target: str
    """Default compilation target: `sm_90`."""
    judges: int
    judges_alive: int
    judges_ready: int
    """Number of judges ready for verdicts. A restarted judge is alive before it is ready."""
    capacity: int
    queued: int
    running: int
    seconds_per_verdict: float | None = None
    eta_seconds: float | None = None
    """Estimated seconds until the end of all verdicts queued now."""


class QueueState(WireValue):
    """How many verdicts wait and are under way."""

    queued: int
    running: int
    devices: tuple[DeviceQueue, ...]


class HealthStatus(StrEnum):
    """Whether the service takes work."""

    OK = "ok"
    NO_JUDGES = "no_judges"
    CLOSING = "closing"


class Health(WireValue):
    """State of the service, and its judges."""

    status: HealthStatus
    version: str
    evaluator: str
    devices: tuple[str, ...]
    judges_alive: int
    judges_ready: int
    queued: int
    running: int
    uptime_seconds: float


class ProblemEntry(WireValue):
    """Problem of the server's catalogue."""

    name: str
    title: str = ""
    family: str = ""
    suite: str = ""
    source: str | None = None
    """Source of the reference; only in the answer for a single problem."""


class ProblemList(WireValue):
    """Problems of the server's catalogue."""

    problems: tuple[ProblemEntry, ...]


class VerdictCount(WireValue):
    """How many verdicts a request changed."""

    verdicts: int

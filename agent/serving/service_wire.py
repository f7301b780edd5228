"""What travels of the service itself: judges, queue, health, problems. Nothing here imports torch."""

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
    """A verdict that a judge is at work on."""

    verdict_id: str | None
    """None for a verdict that the client may not see."""
    doing: str
    seconds: float
    """Seconds since the judge began it."""


class JudgeEntry(WireValue):
    """One judge."""

    name: str
    device: DeviceKind
    state: JudgeCondition
    capacity: int
    started: float
    """When its process was started, in seconds since 1970."""
    restarts: int
    """Times that it died, or was ended over a verdict, since the server was started."""
    verdicts: tuple[RunningVerdict, ...] = ()


class JudgeList(WireValue):
    """Every judge of the service."""

    judges: tuple[JudgeEntry, ...]


class DeviceQueue(WireValue):
    """The judges of one kind of device."""

    device: DeviceKind
    target: str
    """What is compiled for where nobody asks: sm_90."""
    judges: int
    judges_alive: int
    judges_ready: int
    """Judges that take verdicts: one that died and was started again is alive before it is ready."""
    capacity: int
    queued: int
    running: int
    seconds_per_verdict: float | None = None
    eta_seconds: float | None = None
    """Seconds until all that is queued now has ended."""


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
    """Whether the service takes work, and what it judges with."""

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
    """One problem that the service knows."""

    name: str
    title: str = ""
    family: str = ""
    suite: str = ""
    source: str | None = None
    """Only where one problem was asked for."""


class ProblemList(WireValue):
    """The problems that the service knows."""

    problems: tuple[ProblemEntry, ...]


class VerdictCount(WireValue):
    """How many verdicts a request changed."""

    verdicts: int

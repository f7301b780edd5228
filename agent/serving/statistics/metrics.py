"""What Prometheus is told of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelwright.tools.report import Report

if TYPE_CHECKING:
    from kernelwright.agent.serving.service import JudgeService

SECONDS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
ENQUEUE_SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class ServiceMetrics:
    """The metrics of one service, in a registry of its own: two services of one process do not meet."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        where: dict[str, Any] = {"registry": self.registry, "namespace": "kernelwright"}
        self._submissions = Counter(
            "submissions", "Submissions accepted.", ["client", "known"], **where
        )
        self._refused = Counter("refused", "Requests refused.", ["code"], **where)
        self._verdicts = Counter(
            "verdicts", "Verdicts made.", ["device", "rung", "correct", "fault"], **where
        )
        self._unmade = Counter(
            "verdicts_unmade", "Verdicts that ended without a report.", ["how"], **where
        )
        self._seconds = Histogram(
            "verdict_seconds", "Of one verdict.", ["device"], buckets=SECONDS_BUCKETS, **where
        )
        self.enqueue = Histogram(
            "enqueue_seconds",
            "Of one submission, until it is kept.",
            buckets=ENQUEUE_SECONDS_BUCKETS,
            **where,
        )
        self._queued = Gauge("queue_length", "Verdicts that wait.", ["device"], **where)
        self._running = Gauge("running", "Verdicts under way.", ["device"], **where)
        self._alive = Gauge("judges_alive", "Judges that are alive.", ["device"], **where)

    def submitted(self, client: str, known: bool) -> None:
        """Counts a submission of a client; `known`: its verdict was there or under way."""
        self._submissions.labels(client, str(known).lower()).inc()

    def refused(self, code: str) -> None:
        """Counts a refused request by its error code."""
        self._refused.labels(code).inc()

    def judged(self, device: str, report: Report, seconds: float) -> None:
        """Counts a verdict by where it ended, and its seconds by device."""
        fault = report.failure.fault.value if report.failure else ""
        self._verdicts.labels(
            device, report.ended_at.value, str(report.correct).lower(), fault
        ).inc()
        self._seconds.labels(device).observe(seconds)

    def ended(self, how: str) -> None:
        """cancelled, failed or lost."""
        self._unmade.labels(how).inc()

    def text(self, service: JudgeService) -> bytes:
        """Writes the metrics in Prometheus' text format."""
        from prometheus_client import generate_latest

        alive = [judge for judge in service.pool.judges() if judge.alive]
        for device in service.pool.devices:
            queued, running = service.counts(device)
            self._queued.labels(device.value).set(queued)
            self._running.labels(device.value).set(running)
            self._alive.labels(device.value).set(sum(judge.device is device for judge in alive))
        return generate_latest(self.registry)

"""Metrics of the service for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelwright.tools.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry, Metric

    from kernelwright.agent.serving.service import JudgeService

SECONDS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper edges of the histogram buckets for the duration of a verdict, in seconds."""
ENQUEUE_SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper edges of the histogram buckets for the duration of a submission, in seconds."""


class ServiceMetrics:
    """Metrics of a service, in a separate registry, so two services of a process do not collide."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        registry_options: dict[str, Any] = {"registry": self.registry, "namespace": "kernelwright"}
        self._submissions = Counter(
            "submissions", "Submissions accepted.", ["client", "known"], **registry_options
        )
        self._refused = Counter("refused", "Requests refused.", ["code"], **registry_options)
        self._verdicts = Counter(
            "verdicts", "Verdicts made.", ["device", "rung", "correct", "fault"], **registry_options
        )
        self._unmade = Counter(
            "verdicts_unmade", "Verdicts that ended without a report.", ["how"], **registry_options
        )
        self._seconds = Histogram(
            "verdict_seconds",
            "Of one verdict.",
            ["device"],
            buckets=SECONDS_BUCKETS,
            **registry_options,
        )
        self.enqueue = Histogram(
            "enqueue_seconds",
            "Of one submission, until it is kept.",
            buckets=ENQUEUE_SECONDS_BUCKETS,
            **registry_options,
        )
        self._queued = Gauge("queue_length", "Verdicts that wait.", ["device"], **registry_options)
        self._running = Gauge("running", "Verdicts under way.", ["device"], **registry_options)
        self._queue_wait = Histogram(
            "queue_wait_seconds", "Of one verdict, until a judge begins it.", ["device"], buckets=SECONDS_BUCKETS,
            **registry_options,
        )  # fmt: skip
        self._oldest = Gauge(
            "oldest_running_seconds",
            "Age of the oldest running verdict.",
            ["device"],
            **registry_options,
        )
        self._restarts = Gauge(
            "judge_restarts", "Times that a judge died, or was ended over a verdict, since the start.", ["judge"],
            **registry_options,
        )  # fmt: skip
        self._alive = Gauge(
            "judges_alive", "Judges that are alive.", ["device"], **registry_options
        )

    def submitted(self, client: str, is_known: bool) -> None:
        """Counts a submission of a client; `known`: its verdict was there or under way."""
        self._submissions.labels(client, str(is_known).lower()).inc()

    def refused(self, code: str) -> None:
        """Counts a refused request by its error code."""
        self._refused.labels(code).inc()

    def begun(self, device: str, seconds: float) -> None:
        """Counts the waiting time of a verdict in seconds at its start."""
        self._queue_wait.labels(device).observe(seconds)

    def judged(self, device: str, report: Report, seconds: float) -> None:
        """Counts a verdict by its last rung, and its seconds by device."""
        fault = report.failure.fault.value if report.failure else ""
        self._verdicts.labels(
            device, report.ended_at.value, str(report.correct).lower(), fault
        ).inc()
        self._seconds.labels(device).observe(seconds)

    def ended(self, how: str) -> None:
        """cancelled, failed or lost."""
        self._unmade.labels(how).inc()

    def text(self, service: JudgeService, client: str | None = None) -> bytes:
        """Writes the metrics in Prometheus' text format.

        client: the only client whose submissions are included; None includes all.
        """
        from prometheus_client import generate_latest

        judges = service.pool.judges()
        alive = [judge for judge in judges if judge.alive]
        running = service.running_by_judge()
        for judge in judges:
            self._restarts.labels(judge.name).set(judge.restarts)
        for device in service.pool.devices:
            queued, under_way = service.counts(device)
            self._queued.labels(device.value).set(queued)
            oldest = [
                age for j in judges if j.device is device for *_, age in running.get(j.name, ())
            ]
            self._oldest.labels(device.value).set(max(oldest, default=0.0))
            self._running.labels(device.value).set(under_way)
            self._alive.labels(device.value).set(sum(judge.device is device for judge in alive))
        return generate_latest(ClientMetrics(self.registry, client) if client else self.registry)


class ClientMetrics:
    """Collector of a registry's metrics without the samples of other clients."""

    def __init__(self, registry: CollectorRegistry, client: str) -> None:
        self._registry, self._client = registry, client

    def collect(self) -> Iterator[Metric]:
        """Yields each metric with the samples labelled with this client or with no client."""
        for metric in self._registry.collect():
            metric.samples = [
                sample
                for sample in metric.samples
                if sample.labels.get("client", self._client) == self._client
            ]
            yield metric

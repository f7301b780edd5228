"""Throughput, latency and queue length over time, computed from the record, so a restart loses
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from kernelwright.agent.serving.tables import VERDICT
from kernelwright.agent.serving.wire import State, WireValue

BINS = 48
"""Stretches of time, each as long as the others."""
MAX_VERDICTS = 50_000
"""Maximum number of verdicts read, newest first."""


class VerdictTimes(NamedTuple):
    """When a verdict was submitted, begun by a judge and ended, in seconds since 1970."""

    submitted: float
    started: float | None
    ended: float | None


class HistoryBin(WireValue):
    """Figures of a time interval."""

    start: float
    """Seconds since 1970."""
    ended: int
    """Number of verdicts ended within the interval."""
    latency_p50: float | None = None
    """Median seconds from submission to end, of the verdicts ended within the interval."""
    latency_p95: float | None = None
    queued: int
    """Number of waiting verdicts at the end of the interval."""


class ServiceHistory(WireValue):
    """The service over time, the oldest stretch first."""

    seconds_per_bin: float
    ended: int
    latency_p50: float | None = None
    latency_p95: float | None = None
    bins: tuple[HistoryBin, ...]


def read_times(record: sa.Connection, since: float) -> list[VerdictTimes]:
    """Returns the times of the verdicts still open or ended after a moment."""
    is_open = VERDICT.c.state.in_([State.QUEUED.value, State.RUNNING.value])
    ended = sa.select(VERDICT.c.submitted, VERDICT.c.started, VERDICT.c.ended).where(
        VERDICT.c.state.in_([state.value for state in State if state.ended]),
        VERDICT.c.ended > since,
    )
    waiting = sa.select(VERDICT.c.submitted, VERDICT.c.started, sa.null()).where(is_open)
    rows = list(record.execute(ended.order_by(VERDICT.c.ended.desc()).limit(MAX_VERDICTS)))
    rows += record.execute(waiting.limit(MAX_VERDICTS))
    return [VerdictTimes(*row) for row in rows]


def service_history(times: Sequence[VerdictTimes], now: float, seconds: float) -> ServiceHistory:
    """Computes the history of so many seconds until now."""
    width, begin = seconds / BINS, now - seconds
    latencies: list[list[float]] = [[] for _ in range(BINS)]
    # Joining the queue adds 1 and leaving subtracts 1, each in the bin of its moment; the running sum is the length.
    changes = [0] * (BINS + 1)
    for verdict in times:
        left_queue = verdict.started if verdict.started is not None else verdict.ended
        changes[_bin(verdict.submitted, begin, width)] += 1
        if left_queue is not None:
            changes[_bin(max(left_queue, verdict.submitted), begin, width)] -= 1
        if verdict.ended is not None and verdict.ended >= begin:
            latencies[min(BINS - 1, _bin(verdict.ended, begin, width))].append(
                verdict.ended - verdict.submitted
            )
    bins, queued = [], 0
    for number, seconds_of_bin in enumerate(latencies):
        queued += changes[number]
        bins.append(
            HistoryBin(
                start=begin + number * width,
                ended=len(seconds_of_bin),
                latency_p50=percentile(seconds_of_bin, 50),
                latency_p95=percentile(seconds_of_bin, 95),
                queued=queued,
            )
        )
    together = [latency for seconds_of_bin in latencies for latency in seconds_of_bin]
    return ServiceHistory(
        seconds_per_bin=width, ended=len(together), latency_p50=percentile(together, 50),
        latency_p95=percentile(together, 95), bins=tuple(bins),
    )  # fmt: skip


def _bin(moment: float, begin: float, width: float) -> int:
    """Returns the index of the interval of a moment: 0 for earlier moments, BINS for later ones."""
    return min(BINS, max(0, math.floor((moment - begin) / width)))


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Returns the smallest value at or above this percentage of the values; None of no values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]

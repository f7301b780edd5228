"""The reward health of a server's record, computed once for all who ask within a few seconds."""

from __future__ import annotations

import threading
import time

from kernelwright.agent.serving.record import VerdictDatabase
from kernelwright.agent.serving.statistics.reward_health import (
    RewardHealth,
    ScoredSubmission,
    reward_health,
)

FRESH_SECONDS = 5.0
"""Seconds for which a computed value is given: every open page asks each two seconds, and each computation reads the
scores of up to 20,000 submissions.
"""
MAX_VALUES = 64
"""Questions whose values are remembered."""


class RecentRewardHealth:
    """Thread-safe. Whoever asks while a value is computed waits for it."""

    def __init__(self, record: VerdictDatabase) -> None:
        self._record = record
        self._lock = threading.Lock()
        self._values: dict[tuple[str | None, str | None, str], tuple[float, RewardHealth]] = {}

    def of(self, problem: str | None, client: str | None, preset: str) -> RewardHealth:
        """Returns the health of rewards of a problem and a client, paid by a preset; None stands for all."""
        key = (problem, client, preset)
        with self._lock:
            until, value = self._values.get(key, (0.0, None))
            if value is None or time.monotonic() >= until:
                rows = self._record.judged(problem, client)
                value = reward_health([ScoredSubmission(*row) for row in rows], preset)
                if len(self._values) >= MAX_VALUES:
                    self._values.clear()
                self._values[key] = (time.monotonic() + FRESH_SECONDS, value)
            return value

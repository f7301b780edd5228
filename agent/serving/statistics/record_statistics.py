"""Reward health and history of a server's record, computed once for all who ask within a few seconds."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from kernelwright.agent.serving.statistics.statistics_process import (
    HistoryQuestion,
    RewardsQuestion,
)
from kernelwright.tools.faults import InfrastructureError
from kernelwright.worker_process import WorkerDied, WorkerProcess, WorkerTimedOut

STATISTICS_MODULE = "kernelwright.agent.serving.statistics.statistics_process"
STATISTICS_SECONDS = 60.0
"""Time limit of an answer in seconds; afterwards the process is replaced."""
FRESH_SECONDS = 5.0
"""Seconds for which a computed value is given at least: every open page asks each three seconds."""
MAX_SHARE_OF_TIME = 0.02
"""Maximum share of time spent on computing a value; a slow value is computed less often."""
MAX_VALUES = 64
"""Questions whose values are remembered."""


class RecordStatistics:
    """Client of the statistics process. Thread-safe. Callers during a computation share its result."""

    def __init__(self, file: Path) -> None:
        """file: the record. The process is started at the first question."""
        self._file = file
        self._lock = threading.Lock()
        self._process: WorkerProcess | None = None
        self._answers: dict[str, tuple[float, bytes]] = {}

    def rewards(self, problem: str | None, client: str | None, preset: str) -> bytes:
        """Returns the JSON of the `RewardHealth` of a problem and a client, paid by a preset; None stands for all.

        Raises InfrastructureError.
        """
        question = RewardsQuestion(problem=problem, client=client, preset=preset)
        key = question.model_dump_json()
        return self._answer(key, key)

    def history(self, seconds: float) -> bytes:
        """Returns the JSON of the `ServiceHistory` of so many seconds until now. Raises InfrastructureError."""
        question = HistoryQuestion(now=time.time(), seconds=seconds)
        return self._answer(f"history {seconds}", question.model_dump_json())

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._end_process()

    def _answer(self, key: str, question: str) -> bytes:
        with self._lock:
            fresh_until, answer = self._answers.get(key, (0.0, b""))
            if time.monotonic() < fresh_until:
                return answer
            began = time.monotonic()
            answer = self._ask(question.encode())
            took = time.monotonic() - began
            if len(self._answers) >= MAX_VALUES:
                self._answers.clear()
            self._answers[key] = (
                time.monotonic() + max(FRESH_SECONDS, took / MAX_SHARE_OF_TIME),
                answer,
            )
            return answer

    def _ask(self, question: bytes) -> bytes:
        if self._process is None:
            self._process = WorkerProcess(STATISTICS_MODULE, str(self._file))
        try:
            return self._process.ask(question, STATISTICS_SECONDS)
        except (WorkerDied, WorkerTimedOut) as error:
            self._end_process()
            raise InfrastructureError(
                f"the statistics of the record were not computed ({error}): ask again"
            ) from error

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

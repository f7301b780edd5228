"""Deletes verdicts from the record: by client, problem and time when asked to, and old ones once an hour."""

from __future__ import annotations

import logging
import threading
import time

from kernelwright.agent.serving.record import MAX_IDS_OF_A_STATEMENT, VerdictDatabase

log = logging.getLogger(__name__)
DAY_SECONDS = 86_400.0
ROUND_SECONDS = 3_600.0
"""Seconds between two rounds."""


class Deletion:
    """Deletes ended verdicts with their attempts and submissions. Thread-safe."""

    def __init__(self, record: VerdictDatabase, lock: threading.RLock) -> None:
        """lock: lock of the service, so no verdict is submitted again during its deletion."""
        self._record, self._lock = record, lock

    def delete(self, client: str | None, problem: str | None, ended_after: float | None) -> int:
        """Deletes the ended verdicts of a client, on a problem, or with an end after a time.
        Returns their number.
        """
        with self._lock:
            verdict_ids = self._record.ended(client, problem, ended_after)
            self._record.delete(verdict_ids)
        return len(verdict_ids)

    def delete_old(self, ended_before: float) -> int:
        """Deletes the verdicts with an end before a time (seconds since 1970). Returns their
        number.

        Works in rounds of a few hundred verdicts, with requests answered in between.
        """
        count = 0
        while True:
            with self._lock:
                verdict_ids = self._record.ended_before(ended_before, MAX_IDS_OF_A_STATEMENT)
                self._record.delete(verdict_ids)
            count += len(verdict_ids)
            if len(verdict_ids) < MAX_IDS_OF_A_STATEMENT:
                return count


class Retention:
    """Thread deleting old verdicts with their attempts and submissions, at its start and every
    hour.
    """

    def __init__(self, deletion: Deletion, days: float) -> None:
        """days: age of a verdict at its deletion, counted from its end."""
        self._deletion, self._seconds = deletion, days * DAY_SECONDS
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stops the thread after the current round."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            if count := self._deletion.delete_old(time.time() - self._seconds):
                log.info(
                    "%d verdicts older than %g days were deleted",
                    count,
                    self._seconds / DAY_SECONDS,
                )
            if self._closed.wait(ROUND_SECONDS):
                return

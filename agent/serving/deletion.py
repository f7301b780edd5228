"""Deletes verdicts from the record: by client, problem and time."""

from __future__ import annotations

import threading

from kernelwright.agent.serving.record import MAX_IDS_OF_A_STATEMENT, VerdictDatabase


class Deletion:
    """Deletes verdicts that have ended, with their attempts and submissions. Thread-safe."""

    def __init__(self, record: VerdictDatabase, lock: threading.RLock) -> None:
        """lock: the service's, so that no verdict is submitted again while it is deleted."""
        self._record, self._lock = record, lock

    def delete(self, client: str | None, problem: str | None, ended_after: float | None) -> int:
        """Deletes verdicts of a client, of a problem, or that ended after a time, and returns how many."""
        with self._lock:
            verdict_ids = self._record.ended(client, problem, ended_after)
            self._record.delete(verdict_ids)
        return len(verdict_ids)

    def delete_old(self, ended_before: float) -> int:
        """Deletes verdicts that ended before a time (seconds since 1970), and returns how many.

        Requests are answered between two rounds of a few hundred verdicts.
        """
        count = 0
        while True:
            with self._lock:
                verdict_ids = self._record.ended_before(ended_before, MAX_IDS_OF_A_STATEMENT)
                self._record.delete(verdict_ids)
            count += len(verdict_ids)
            if len(verdict_ids) < MAX_IDS_OF_A_STATEMENT:
                return count

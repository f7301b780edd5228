"""Deletes verdicts that ended too long ago, once an hour."""

from __future__ import annotations

import logging
import threading
import time

from kernelwright.agent.serving.service import JudgeService

log = logging.getLogger(__name__)
DAY_SECONDS = 86_400.0
ROUND_SECONDS = 3_600.0
"""Seconds between two rounds."""


class Retention:
    """A thread that deletes old verdicts with their attempts and submissions, at its start and every hour."""

    def __init__(self, service: JudgeService, days: float) -> None:
        """days: for which a verdict is kept after it has ended."""
        self._service, self._seconds = service, days * DAY_SECONDS
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, after the round that it is at."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            if count := self._service.deletion.delete_old(time.time() - self._seconds):
                log.info(
                    "%d verdicts older than %g days were deleted",
                    count,
                    self._seconds / DAY_SECONDS,
                )
            if self._closed.wait(ROUND_SECONDS):
                return

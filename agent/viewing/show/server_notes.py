"""Collects the policies' log messages on their servers while a command runs: replies with their
cost, waits, omitted fields.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

POLICIES_LOGGER = "kernelwright.policies"
MAX_NOTES_SHOWN = 3
"""Maximum number of notes displayed in a terminal, the latest."""
MAX_NOTES_WAITING = 200
"""Maximum number of notes waiting to be printed as lines."""


class ServerNotes(logging.Handler):
    """Collects the messages of the policies' loggers, from any thread."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._waiting: deque[str] = deque(maxlen=MAX_NOTES_WAITING)
        self.latest: deque[str] = deque(maxlen=MAX_NOTES_SHOWN)

    def emit(self, record: logging.LogRecord) -> None:
        """Stores the message of a log record."""
        message = record.getMessage()
        self._waiting.append(message)
        self.latest.append(message)

    def take(self) -> list[str]:
        """Returns the messages since the last call."""
        notes = []
        while self._waiting:
            notes.append(self._waiting.popleft())
        return notes

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Collects messages while the block runs."""
        logger = logging.getLogger(POLICIES_LOGGER)
        level = logger.level
        logger.addHandler(self)
        logger.setLevel(self.level)
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(level)

"""The budget of one server: verdicts and seconds of judging, counted from its start."""

from __future__ import annotations

import threading

from kernelwright.agent.mcp_server.answers import BudgetLeft


class ServerBudget:
    """Counts down. Thread-safe. A verdict is taken when it begins, and given back where this machine failed."""

    def __init__(self, verdicts: int, seconds: float) -> None:
        self._verdicts, self._seconds = verdicts, seconds
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Takes one verdict; False where the verdicts or the seconds are spent."""
        with self._lock:
            if self._verdicts <= 0 or self._seconds <= 0.0:
                return False
            self._verdicts -= 1
            return True

    def charge(self, seconds: float) -> None:
        """Takes the seconds that a finished verdict needed."""
        with self._lock:
            self._seconds -= seconds

    def give_back(self) -> None:
        """Returns a verdict that was not made."""
        with self._lock:
            self._verdicts += 1

    def left(self) -> BudgetLeft:
        """Returns the rest of the budget: verdicts, and seconds of judging to a tenth."""
        with self._lock:
            return BudgetLeft(verdicts=self._verdicts, seconds=round(max(0.0, self._seconds), 1))

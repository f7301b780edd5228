"""Budgets of the clients of one server: verdicts and seconds of judging, counted from the server's start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar

from kernelwright.agent.mcp_server.answers import BudgetLeft

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""The client whose call is answered: the name in the token file, empty where there is none."""


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


class ClientBudgets:
    """A budget for each client, made at its first call. Thread-safe."""

    def __init__(
        self,
        verdicts: int,
        seconds: float,
        seconds_of: Callable[[str], float | None] = lambda client: None,
    ) -> None:
        """verdicts, seconds: of each client. seconds_of: seconds of a client that has others; None for those."""
        self._verdicts, self._seconds, self._seconds_of = verdicts, seconds, seconds_of
        self._lock = threading.Lock()
        self._budgets: dict[str, ServerBudget] = {}

    @property
    def current(self) -> ServerBudget:
        """The budget of the client whose call is answered."""
        client = CLIENT.get()
        with self._lock:
            if client not in self._budgets:
                seconds = self._seconds_of(client)
                self._budgets[client] = ServerBudget(
                    self._verdicts, self._seconds if seconds is None else seconds
                )
            return self._budgets[client]

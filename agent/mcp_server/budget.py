"""Budgets of a server's clients: verdicts and seconds of judging, counted from the server's start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar

from kernelwright.agent.mcp_server.answers import BudgetLeft

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""Client of the current call: the name in the token file; empty without a token file."""


class ServerBudget:
    """Counts verdicts and seconds down. Thread-safe.

    A verdict is taken at its start and given back after a failure of this machine.
    """

    def __init__(self, verdicts: int, seconds: float) -> None:
        self._verdicts, self._seconds = verdicts, seconds
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Takes one verdict. Returns False if the verdicts or the seconds are spent."""
        with self._lock:
            if self._verdicts <= 0 or self._seconds <= 0.0:
                return False
            self._verdicts -= 1
            return True

    def charge(self, seconds: float) -> None:
        """Takes the seconds of a finished verdict."""
        with self._lock:
            self._seconds -= seconds

    def give_back(self) -> None:
        """Adds a verdict back after its failure."""
        with self._lock:
            self._verdicts += 1

    def remaining(self) -> BudgetLeft:
        """Returns the remaining verdicts, and the remaining seconds of judging to a tenth."""
        with self._lock:
            return BudgetLeft(verdicts=self._verdicts, seconds=round(max(0.0, self._seconds), 1))


class ClientBudgets:
    """Holds a budget for each client, made at the client's first call. Thread-safe."""

    def __init__(
        self,
        verdicts: int,
        seconds: float,
        seconds_of: Callable[[str], float | None] = lambda client: None,
    ) -> None:
        """verdicts, seconds: budget of each client. seconds_of: returns a client's own number of
        seconds; None: the default.
        """
        self._verdicts, self._seconds, self._seconds_of = verdicts, seconds, seconds_of
        self._lock = threading.Lock()
        self._budgets: dict[str, ServerBudget] = {}

    @property
    def current(self) -> ServerBudget:
        """Budget of the client of the current call."""
        client = CLIENT.get()
        with self._lock:
            if client not in self._budgets:
                seconds = self._seconds_of(client)
                self._budgets[client] = ServerBudget(
                    self._verdicts, self._seconds if seconds is None else seconds
                )
            return self._budgets[client]

"""Quotas of the clients of the service."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from kernelwright.agent.serving.content import RequestRefused
from kernelwright.agent.serving.wire import Code, WireValue

QUOTA_WINDOW_SECONDS = 60.0
BUDGET_WINDOW_SECONDS = 3600.0
"""Length of the sliding window of a client's judge-seconds budget, in seconds."""


class QuotaLimits(WireValue):
    """Limits of the service and of each client."""

    queue: int = 4096
    """Largest number of waiting verdicts."""
    client_pending: int = 512
    """Maximum number of waiting and running verdicts of a client."""
    client_per_minute: int | None = None
    """Maximum number of submissions of a client within a minute."""
    client_seconds: float | None = None
    """Maximum judge seconds of a client within BUDGET_WINDOW_SECONDS."""
    client_streams: int = 256
    """Maximum number of open event streams of a client."""


class Quotas:
    """Counts by client. Not thread-safe: the service holds its lock."""

    def __init__(
        self,
        limits: QuotaLimits,
        budget_of: Callable[[str], float | None] = lambda client: None,
        spent: Iterable[tuple[str, float, float]] = (),
    ) -> None:
        """budget_of: judge seconds of a client within the window; None: those of the limits. spent:
        client, end (seconds since 1970) and judge seconds of verdicts made by an earlier server.
        """
        self._limits, self._budget_of = limits, budget_of
        self._spent: defaultdict[str, deque[tuple[float, float]]] = defaultdict(deque)
        """Ends (seconds since 1970) and judge seconds of each client's verdicts, the oldest first."""
        for client, ended, seconds in spent:
            self._spent[client].append((ended, seconds))
        self._pending: defaultdict[str, set[str]] = defaultdict(set)
        self._arrivals: defaultdict[str, deque[float]] = defaultdict(deque)

    def count_arrival(self, client: str) -> None:
        """Counts a submission. Raises RequestRefused above the limit per minute."""
        most = self._limits.client_per_minute
        if most is None:
            return
        now, arrivals = time.monotonic(), self._arrivals[client]
        while arrivals and arrivals[0] <= now - QUOTA_WINDOW_SECONDS:
            arrivals.popleft()
        if len(arrivals) >= most:
            wait = max(1, math.ceil(arrivals[0] + QUOTA_WINDOW_SECONDS - now))
            raise RequestRefused(
                Code.QUOTA,
                f"more than {most} submissions within a minute: ask again in {wait} s",
                wait,
            )
        arrivals.append(now)

    def check_pending(self, client: str, seconds_per_verdict: float | None) -> None:
        """Raises RequestRefused if the client has as many open verdicts as allowed."""
        most = self._limits.client_pending
        if len(self._pending[client]) >= most:
            wait = max(1, math.ceil(seconds_per_verdict or 1.0))
            raise RequestRefused(
                Code.QUOTA,
                f"{most} verdicts of yours are not finished: ask again in {wait} s",
                wait,
            )

    def budget(self, client: str) -> float | None:
        """Returns a client's judge seconds within the window; None: no limit."""
        client_budget = self._budget_of(client)
        return self._limits.client_seconds if client_budget is None else client_budget

    def spend(self, client: str, seconds: float) -> None:
        """Adds judge seconds of a client's verdict."""
        self._spent[client].append((time.time(), seconds))

    def spent(self, client: str) -> float:
        """Returns the judge seconds of a client's verdicts within the window."""
        entries, oldest = self._spent.get(client), time.time() - BUDGET_WINDOW_SECONDS
        while entries and entries[0][0] <= oldest:
            entries.popleft()
        return sum(seconds for _, seconds in entries or ())

    def check_budget(self, client: str) -> None:
        """Raises RequestRefused if the client's judge seconds are spent."""
        budget = self.budget(client)
        if budget is None or (spent := self.spent(client)) < budget:
            return
        wait = 1
        for ended, seconds in self._spent[client]:
            spent -= seconds
            if spent < budget:
                wait = max(1, math.ceil(ended + BUDGET_WINDOW_SECONDS - time.time()))
                break
        raise RequestRefused(
            Code.QUOTA,
            f"your verdicts have taken {budget:g} s of the judges within an hour: ask again in {wait} s",
            wait,
        )

    def pending(self, client: str) -> int:
        """Returns the number of a client's open verdicts."""
        return len(self._pending.get(client, ()))

    def add(self, client: str, verdict_id: str) -> None:
        """Adds a verdict to a client's open verdicts; repeated calls count once."""
        self._pending[client].add(verdict_id)

    def drop(self, verdict_id: str, client: str | None = None) -> None:
        """Removes a verdict from the open verdicts of a client, or of all clients after its end."""
        for name in [client] if client is not None else list(self._pending):
            self._pending[name].discard(verdict_id)
            if not self._pending[name]:
                del self._pending[name]

    def first_client(self, verdict_id: str) -> str:
        """Returns a client waiting for this verdict; empty if there is none."""
        return next(
            (client for client, pending in self._pending.items() if verdict_id in pending), ""
        )

    def is_wanted(self, verdict_id: str) -> bool:
        """Returns whether any client waits for this verdict."""
        return any(verdict_id in pending for pending in self._pending.values())

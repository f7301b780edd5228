"""Queue of verdicts for judges: by kind of device, clients in turn (round robin).

The verdicts of a client are ordered by priority, then by arrival. Example, with the letter as
client, the number as arrival and equal priorities:

    A1 A2 A3 B4 C5  ->  A1 B4 C5 A2 A3

A verdict is passed over for a while if no idle judge could begin it without a new process (the
judge has run another client's reference), because a process takes seconds to start.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from kernelwright.agent.judging.pool import DeviceKind

MAX_PASSED_OVER_SECONDS = 20.0
"""Seconds the first verdict may be passed over: about three times the start of a judge process."""


class WaitingEntry(NamedTuple):
    """Verdict in the queue."""

    verdict_id: str
    device: DeviceKind
    sequence: int
    client: str
    """Client whose turn the verdict takes: the first submitter."""
    domain: str
    """Owner of the reference (JudgePool.submit)."""
    priority: int = 0
    """Order among the verdicts of the client, largest first."""
    since: float = 0.0
    """Time of joining the queue, on the monotonic clock."""

    @property
    def order(self) -> tuple[int, int, str]:
        """Sort key among the verdicts of the client, smallest first."""
        return (-self.priority, self.sequence, self.verdict_id)


class WaitingLine:
    """Queue of verdicts for judges. Not thread-safe: the service holds its lock."""

    def __init__(self) -> None:
        self._turns: dict[DeviceKind, OrderedDict[str, list[tuple[int, int, str]]]]
        self._turns = {kind: OrderedDict() for kind in DeviceKind}
        """Verdicts of each client in their order; the client next in turn comes first."""
        self._entries: dict[str, WaitingEntry] = {}
        self._passed_over: dict[DeviceKind, tuple[str, float]] = {}
        """First verdict without a fitting judge, and the time it became first (monotonic clock)."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, verdict_id: str) -> bool:
        return verdict_id in self._entries

    def length(self, device: DeviceKind) -> int:
        """Returns the number of verdicts waiting for a kind of device."""
        return sum(len(verdicts) for verdicts in self._turns[device].values())

    def add(self, entry: WaitingEntry) -> None:
        """Adds a verdict to those of its client, the largest priority first."""
        insort(self._turns[entry.device].setdefault(entry.client, []), entry.order)
        self._entries[entry.verdict_id] = entry

    def remove(self, verdict_id: str) -> None:
        """Removes a verdict from the queue; no effect for an unknown id."""
        if (entry := self._entries.pop(verdict_id, None)) is None:
            return
        turns = self._turns[entry.device]
        turns[entry.client].remove(entry.order)
        if not turns[entry.client]:
            del turns[entry.client]

    def first(self, device: DeviceKind, fits: Callable[[str], bool]) -> WaitingEntry | None:
        """Takes the next verdict from the queue, and gives the turn to the next client.

        fits: returns whether an idle judge could begin a verdict of this domain at once.
        """
        turns = self._turns[device]
        if not turns:
            return None
        # The first verdict of the client whose turn it is.
        entry = self._entries[next(iter(turns.values()))[0][-1]]
        if not fits(entry.domain) and not self._waited_enough(entry):
            entry = self._first_fitting(device, fits) or entry
        self.remove(entry.verdict_id)
        # `remove` drops a client without verdicts, which then joins the end of the turns anew.
        if entry.client in turns:
            turns.move_to_end(entry.client)
        return entry

    def _waited_enough(self, entry: WaitingEntry) -> bool:
        """Returns whether the first verdict has been passed over for MAX_PASSED_OVER_SECONDS."""
        now = time.monotonic()
        verdict_id, since = self._passed_over.get(entry.device, ("", now))
        if verdict_id != entry.verdict_id:
            self._passed_over[entry.device] = (entry.verdict_id, now)
            return False
        return now - since > MAX_PASSED_OVER_SECONDS

    def _first_fitting(
        self, device: DeviceKind, fits: Callable[[str], bool]
    ) -> WaitingEntry | None:
        fits_by_domain: dict[str, bool] = {}
        for verdicts in self._turns[device].values():
            for *_, verdict_id in verdicts:
                entry = self._entries[verdict_id]
                if entry.domain not in fits_by_domain:
                    fits_by_domain[entry.domain] = fits(entry.domain)
                if fits_by_domain[entry.domain]:
                    return entry
        return None

    def position(self, verdict_id: str) -> int | None:
        """Returns the number in the queue, from 1, assuming no new clients; None for an unknown id."""
        if (entry := self._entries.get(verdict_id)) is None:
            return None
        turns = self._turns[entry.device]
        before_own = bisect_left(turns[entry.client], entry.order)
        # Other clients get a turn for each of this client's earlier verdicts, those before it one
        # more.
        position, is_before = before_own + 1, 1
        for client, verdicts in turns.items():
            if client == entry.client:
                is_before = 0
            else:
                position += min(len(verdicts), before_own + is_before)
        return position

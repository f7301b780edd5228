"""The verdicts that wait for a judge: by kind of device, one of each client in turn.

A client's own verdicts are in the order of their priority, then of their arrival. A verdict that no idle judge could
begin without another process (its reference is another client's than the judge has run) is passed over for a while,
because a process takes seconds to start.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from kernelwright.agent.judging.pool import DeviceKind

MAX_PASSED_OVER_SECONDS = 20.0
"""Seconds for which the first verdict is passed over: about three times what another judge process takes to start."""


class WaitingEntry(NamedTuple):
    """A verdict that waits."""

    verdict_id: str
    device: DeviceKind
    sequence: int
    client: str
    """Whose turn it takes: the client that submitted it first."""
    domain: str
    """Whose reference it is (JudgePool.submit)."""
    priority: int = 0
    """Verdicts of the same client with a larger one come first."""
    since: float = 0.0
    """When it joined the line, of the monotonic clock."""

    @property
    def order(self) -> tuple[int, int, str]:
        """Its place among the verdicts of its client, the smallest first."""
        return (-self.priority, self.sequence, self.verdict_id)


class WaitingLine:
    """The verdicts that wait for a judge. Not thread-safe: the service holds its lock."""

    def __init__(self) -> None:
        self._turns: dict[DeviceKind, OrderedDict[str, list[tuple[int, int, str]]]]
        self._turns = {kind: OrderedDict() for kind in DeviceKind}
        """The verdicts of each client in their order; the client whose turn it is first."""
        self._entries: dict[str, WaitingEntry] = {}
        self._passed_over: dict[DeviceKind, tuple[str, float]] = {}
        """The first verdict that does not fit, and since when (monotonic clock)."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, verdict_id: str) -> bool:
        return verdict_id in self._entries

    def length(self, device: DeviceKind) -> int:
        """Verdicts that wait for a device of this kind."""
        return sum(len(verdicts) for verdicts in self._turns[device].values())

    def add(self, entry: WaitingEntry) -> None:
        """Adds a verdict to those of its client, the largest priority first."""
        insort(self._turns[entry.device].setdefault(entry.client, []), entry.order)
        self._entries[entry.verdict_id] = entry

    def remove(self, verdict_id: str) -> None:
        """Removes one from the line; does nothing where it does not wait."""
        if (entry := self._entries.pop(verdict_id, None)) is None:
            return
        turns = self._turns[entry.device]
        turns[entry.client].remove(entry.order)
        if not turns[entry.client]:
            del turns[entry.client]

    def first(self, device: DeviceKind, fits: Callable[[str], bool]) -> WaitingEntry | None:
        """Takes the next verdict out, and gives the turn to the next client.

        fits: whether an idle judge could begin a verdict of that domain at once.
        """
        turns = self._turns[device]
        if not turns:
            return None
        entry = self._entries[next(iter(turns.values()))[0][-1]]
        if not fits(entry.domain) and not self._waited_enough(entry):
            entry = self._first_fitting(device, fits) or entry
        self.remove(entry.verdict_id)
        if entry.client in turns:
            turns.move_to_end(entry.client)
        return entry

    def _waited_enough(self, entry: WaitingEntry) -> bool:
        """Whether the first verdict has been passed over for long enough."""
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
        """Returns the place in the line, from 1, if no other client came; None where it does not wait."""
        if (entry := self._entries.get(verdict_id)) is None:
            return None
        turns = self._turns[entry.device]
        before_own = bisect_left(turns[entry.client], entry.order)
        position, is_before = before_own + 1, 1
        for client, verdicts in turns.items():
            if client == entry.client:
                is_before = 0
            else:
                position += min(len(verdicts), before_own + is_before)
        return position

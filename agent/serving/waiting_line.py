"""The verdicts that wait for a judge, by kind of device, in the order of their arrival."""

from __future__ import annotations

from bisect import bisect_left, insort

from kernelwright.agent.judging.pool import DeviceKind


class WaitingLine:
    """The verdicts that wait for a judge. Not thread-safe: the service holds its lock."""

    def __init__(self) -> None:
        self._order: dict[DeviceKind, list[tuple[int, str]]] = {kind: [] for kind in DeviceKind}
        self._places: dict[str, tuple[DeviceKind, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, verdict_id: str) -> bool:
        return verdict_id in self._places

    def length(self, device: DeviceKind) -> int:
        """Verdicts that wait for a device of this kind."""
        return len(self._order[device])

    def add(self, verdict_id: str, device: DeviceKind, sequence: int) -> None:
        """Puts a verdict into the line by its sequence number, the smallest first."""
        insort(self._order[device], (sequence, verdict_id))
        self._places[verdict_id] = (device, sequence)

    def remove(self, verdict_id: str) -> None:
        """Removes one from the line; does nothing where it does not wait."""
        if (place := self._places.pop(verdict_id, None)) is not None:
            device, sequence = place
            self._order[device].remove((sequence, verdict_id))

    def first(self, device: DeviceKind) -> str | None:
        """Takes the first out."""
        if not self._order[device]:
            return None
        _, verdict_id = self._order[device].pop(0)
        del self._places[verdict_id]
        return verdict_id

    def position(self, verdict_id: str) -> int | None:
        """Returns the place in the line, from 1; None where it does not wait."""
        if (place := self._places.get(verdict_id)) is None:
            return None
        device, sequence = place
        return bisect_left(self._order[device], (sequence, verdict_id)) + 1

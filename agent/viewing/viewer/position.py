"""The current position of the viewer: trajectory, turn and filter.

Every move returns the reason if it is not possible.
"""

from __future__ import annotations

from kernelwright.agent.reporting.viewed_trajectory import (
    ViewedTrajectory,
    is_filtering,
    neighbouring_trajectory,
    newest_trajectory,
    read_viewed_trajectory,
)
from kernelwright.store.database import Store
from kernelwright.store.models import CandidateState
from kernelwright.store.records import CandidateFilter, Entry, Turn


class ViewerPosition:
    """The displayed trajectory and turn. Raises StoreError if the database cannot be read, and
    then does not move.
    """

    def __init__(
        self,
        store: Store,
        trajectory_id: int,
        candidate_id: int | None = None,
        candidate_filter: CandidateFilter | None = None,
    ) -> None:
        self.store = store
        self.candidate_filter = candidate_filter or CandidateFilter()
        self._turns: dict[int, Turn] = {}
        self.go(trajectory_id, candidate_id)

    @property
    def entry(self) -> Entry | None:
        """The displayed turn; None if there is none yet."""
        return self.viewed.entries[self.index] if self.viewed.entries else None

    @property
    def filtered(self) -> bool:
        """Whether a filter hides trajectories."""
        return is_filtering(self.candidate_filter)

    def turn(self) -> Turn | None:
        """Returns the turn with its texts. Judged turns are cached: they change only if they are
        judged again.
        """
        if self.entry is None:
            return None
        id = self.entry.candidate.id
        if id not in self._turns:
            self._turns[id] = self.store.turn(id)
        turn = self._turns[id]
        if turn.state is not CandidateState.JUDGED:  # may still change: read again the next time
            del self._turns[id]
        return turn

    def go(self, trajectory_id: int, candidate_id: int | None = None) -> None:
        """Goes to this candidate, else to the first fitting turn."""
        viewed = read_viewed_trajectory(self.store, trajectory_id, self.candidate_filter)
        index = viewed.index_of(candidate_id) if candidate_id is not None else None
        self.viewed: ViewedTrajectory = viewed
        self.index: int = index if index is not None else next(iter(viewed.fitting_indices()), 0)

    def step(self, by: int) -> str:
        """Goes to the next (1) or the previous (-1) fitting turn."""
        indices = [
            index for index in self.viewed.fitting_indices() if (index - self.index) * by > 0
        ]
        if not indices:
            return f"this is the {'last' if by > 0 else 'first'} turn{self._that_fits()}"
        self.index = min(indices) if by > 0 else max(indices)
        return ""

    def end(self, edge: int) -> str:
        """Goes to the first (0) or the last (-1) fitting turn."""
        if not (indices := self.viewed.fitting_indices()):
            return f"there is no turn{self._that_fits() or ' yet'}"
        self.index = indices[edge]
        return ""

    def move(self, by: int) -> str:
        """Goes to the next (1) or the previous (-1) trajectory."""
        neighbour = neighbouring_trajectory(
            self.store, self.viewed.row.id, by, self.candidate_filter
        )
        if neighbour is None:
            return f"this is the {'last' if by > 0 else 'first'} trajectory{self._that_fits()}"
        self.go(neighbour)
        return ""

    def filter(self, candidate_filter: CandidateFilter) -> str:
        """Sets a filter: stays if the trajectory fits, else goes to the newest trajectory with a
        turn that fits.

        If no trajectory fits, nothing changes.
        """
        current_id = self.entry.candidate.id if self.entry else None
        viewed = read_viewed_trajectory(self.store, self.viewed.row.id, candidate_filter)
        target = (
            self.viewed.row.id
            if viewed.fitting
            else newest_trajectory(self.store, candidate_filter)
        )
        if target is None:
            return "nothing fits that filter: it is as it was"
        self.candidate_filter = candidate_filter
        self.go(target, current_id if current_id in viewed.fitting else None)
        return ""

    def refresh(self) -> bool:
        """Reads again; from the last turn the position moves to the new last turn. Returns
        whether anything changed.
        """
        before, at_last = self.viewed, self.index == len(self.viewed.entries) - 1
        id = self.entry.candidate.id if self.entry else None
        self._turns.clear()
        self.go(before.row.id, id)
        if at_last and self.viewed.entries:
            self.index = len(self.viewed.entries) - 1
        return self.viewed.entries != before.entries or self.viewed.row != before.row

    def follow(self) -> bool:
        """Goes to the last turn of the newest trajectory. Returns whether anything changed."""
        latest = newest_trajectory(self.store, self.candidate_filter)
        moved = latest is not None and latest != self.viewed.row.id
        if moved:
            assert latest is not None
            self.go(latest)
        changed = self.refresh()
        previous_index, self.index = self.index, max(0, len(self.viewed.entries) - 1)
        return moved or changed or previous_index != self.index

    def _that_fits(self) -> str:
        return " that fits the filter" if self.filtered else ""

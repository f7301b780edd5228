"""Where the viewer is: which trajectory, which turn of it, under which filter.

Every move says why it could not be made.
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
from kernelwright.store.models import State
from kernelwright.store.records import CandidateFilter, Entry, Turn


class ViewerPosition:
    """Raises StoreError wherever the database cannot be read, and stays where it was."""

    def __init__(
        self,
        store: Store,
        trajectory_id: int,
        candidate_id: int | None = None,
        wanted: CandidateFilter | None = None,
    ) -> None:
        self.store = store
        self.wanted = wanted or CandidateFilter()
        self._turns: dict[int, Turn] = {}
        self.go(trajectory_id, candidate_id)

    @property
    def entry(self) -> Entry | None:
        """The turn that is shown; None where there is none yet."""
        return self.viewed.entries[self.place] if self.viewed.entries else None

    @property
    def filtered(self) -> bool:
        """Whether a filter leaves trajectories out."""
        return is_filtering(self.wanted)

    def turn(self) -> Turn | None:
        """The turn with its texts; what was judged is kept, for it changes only when it is judged again."""
        if self.entry is None:
            return None
        id = self.entry.candidate.id
        if id not in self._turns:
            self._turns[id] = self.store.turn(id)
        turn = self._turns[id]
        if turn.state is not State.JUDGED:
            del self._turns[id]
        return turn

    def go(self, trajectory_id: int, candidate_id: int | None = None) -> None:
        """Goes to this candidate, else to the first turn that the filter wants."""
        viewed = read_viewed_trajectory(self.store, trajectory_id, self.wanted)
        place = viewed.place_of(candidate_id) if candidate_id is not None else None
        self.viewed: ViewedTrajectory = viewed
        self.place: int = place if place is not None else next(iter(viewed.wanted()), 0)

    def step(self, by: int) -> str:
        """Goes to the next (1) or the previous (-1) turn that the filter wants."""
        wanted = [place for place in self.viewed.wanted() if (place - self.place) * by > 0]
        if not wanted:
            return f"this is the {'last' if by > 0 else 'first'} turn{self._that_fits()}"
        self.place = min(wanted) if by > 0 else max(wanted)
        return ""

    def end(self, which: int) -> str:
        """Goes to the first (0) or the last (-1) turn that the filter wants."""
        if not (wanted := self.viewed.wanted()):
            return f"there is no turn{self._that_fits() or ' yet'}"
        self.place = wanted[which]
        return ""

    def move(self, by: int) -> str:
        """Goes to the next (1) or the previous (-1) trajectory."""
        found = neighbouring_trajectory(self.store, self.viewed.row.id, by, self.wanted)
        if found is None:
            return f"this is the {'last' if by > 0 else 'first'} trajectory{self._that_fits()}"
        self.go(found)
        return ""

    def filter(self, wanted: CandidateFilter) -> str:
        """Stays where it is if the filter wants it, else goes to the newest trajectory that has such a turn.

        Without one nothing changes.
        """
        here = self.entry.candidate.id if self.entry else None
        viewed = read_viewed_trajectory(self.store, self.viewed.row.id, wanted)
        target = self.viewed.row.id if viewed.fitting else newest_trajectory(self.store, wanted)
        if target is None:
            return "nothing fits that filter: it is as it was"
        self.wanted = wanted
        self.go(target, here if here in viewed.fitting else None)
        return ""

    def refresh(self) -> bool:
        """Reads again; from the last turn it goes on to the new last one. Gives whether anything changed."""
        before, at_last = self.viewed, self.place == len(self.viewed.entries) - 1
        id = self.entry.candidate.id if self.entry else None
        self._turns.clear()
        self.go(before.row.id, id)
        if at_last and self.viewed.entries:
            self.place = len(self.viewed.entries) - 1
        return self.viewed.entries != before.entries or self.viewed.row != before.row

    def follow(self) -> bool:
        """Goes to the last turn of the newest trajectory. Returns whether anything changed."""
        latest = newest_trajectory(self.store, self.wanted)
        moved = latest is not None and latest != self.viewed.row.id
        if moved:
            assert latest is not None
            self.go(latest)
        changed = self.refresh()
        place, self.place = self.place, max(0, len(self.viewed.entries) - 1)
        return moved or changed or place != self.place

    def _that_fits(self) -> str:
        return " that fits the filter" if self.filtered else ""

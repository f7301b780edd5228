"""A trajectory as the viewer holds it: rows and lineage, no text. Texts are read one turn at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.samples import best_entry
from store.database import Store
from store.lineage import best, lineage
from store.models import Trajectory
from store.records import CandidateFilter, Entry, Order, TrajectoryFilter


@dataclass(frozen=True)
class Trail:
    row: Trajectory
    entries: tuple[Entry, ...]
    """Its own turns, in their order."""
    graph: Any
    """store.lineage.lineage: with the ancestors that a fork has in another trajectory."""
    best_id: int | None
    fitting: frozenset[int]
    """Candidates that the filter wants."""

    @property
    def target(self) -> str:
        """What its candidates were compiled for, first."""
        targets = self.row.options.get("targets") or ("sm_90",)
        return str(targets[0])

    def place_of(self, candidate_id: int) -> int | None:
        return next((place for place, entry in enumerate(self.entries) if entry.candidate.id == candidate_id), None)

    def wanted(self) -> list[int]:
        """Places that the filter wants."""
        return [place for place, entry in enumerate(self.entries) if entry.candidate.id in self.fitting]


def read_trail(store: Store, trajectory_id: int, wanted: CandidateFilter | None = None) -> Trail:
    """Raises StoreError where there is none."""
    row = store.trajectory(trajectory_id)
    graph = lineage(store, trajectory_id)
    own = [data["entry"] for _, data in graph.nodes(data=True) if data["entry"].candidate.trajectory_id == row.id]
    own.sort(key=lambda entry: entry.candidate.turn)
    fitting = [entry.candidate.id for entry in own]
    if filters(wanted):
        assert wanted is not None
        chosen = wanted.model_copy(update={"trajectory_id": trajectory_id})
        fitting = [entry.candidate.id for entry in store.candidates(chosen, order=Order.OLDEST, limit=None)]
    return Trail(row, tuple(own), graph, best(graph), frozenset(fitting))


def filters(wanted: CandidateFilter | None) -> bool:
    return wanted is not None and wanted != CandidateFilter()


def listed(
    store: Store, wanted: CandidateFilter | None = None, *, before: int | None = None, limit: int = 50
) -> list[tuple[Trajectory, Sequence[Entry]]]:
    """Trajectories, the newest first, each with its turns. `before`: the id of the last one seen."""
    rows = store.trajectories(_chosen(wanted), before=before, limit=limit)
    return [
        (row, store.candidates(CandidateFilter(trajectory_id=row.id), order=Order.OLDEST, limit=None)) for row in rows
    ]


def neighbour(store: Store, trajectory_id: int, step: int, wanted: CandidateFilter | None = None) -> int | None:
    """The next (`step` 1) or previous (-1) trajectory by number that the filter wants."""
    found = store.trajectories(_chosen(wanted), before=trajectory_id, limit=1, newest=step < 0)
    return found[0].id if found else None


def newest(store: Store, wanted: CandidateFilter | None = None) -> int | None:
    found = store.trajectories(_chosen(wanted), limit=1)
    return found[0].id if found else None


def _chosen(wanted: CandidateFilter | None) -> TrajectoryFilter:
    """Without a filter also those that have no turn yet."""
    return wanted if wanted is not None and filters(wanted) else TrajectoryFilter()


def standing(entries: Sequence[Entry]) -> tuple[str, bool]:
    """`correct 1.32x`, `mismatch`: the best turn in two words, and whether it is correct."""
    chosen = best_entry(entries)
    return said(chosen) if chosen is not None else ("not judged", False)


def said(entry: Entry) -> tuple[str, bool]:
    """The verdict of one candidate in two words, and whether it is correct."""
    verdict = entry.verdict
    if verdict is None:
        return entry.candidate.state.value, False
    if not verdict.correct:
        return (verdict.fault.value if verdict.fault else "incorrect").replace("_", " "), False
    speed = f" {verdict.speedup:.3g}x" if verdict.speedup is not None else ""
    return f"correct{speed}" + (" on a CPU" if verdict.judged_on == "cpu" else ""), True

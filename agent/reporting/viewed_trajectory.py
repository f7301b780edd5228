"""A trajectory as the viewer holds it (rows and lineage, without texts), and its lineage drawn as a tree.

Prompts, replies and reports are read from the store one turn at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from kernelwright.agent.reporting.samples import best_entry
from kernelwright.agent.reporting.words import BAD, GOOD, QUIET, WARN
from kernelwright.policies.base import Origin
from kernelwright.store.database import Store
from kernelwright.store.lineage import best_candidate, lineage
from kernelwright.store.models import Trajectory
from kernelwright.store.records import CandidateFilter, Entry, Order, TrajectoryFilter


@dataclass(frozen=True)
class ViewedTrajectory:
    """A trajectory as the viewer reads it from the database."""

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
        """The place of a candidate in the viewed, None where it is not in it."""
        return next(
            (
                place
                for place, entry in enumerate(self.entries)
                if entry.candidate.id == candidate_id
            ),
            None,
        )

    def wanted(self) -> list[int]:
        """Places that the filter wants."""
        return [
            place for place, entry in enumerate(self.entries) if entry.candidate.id in self.fitting
        ]


def read_viewed_trajectory(
    store: Store, trajectory_id: int, wanted: CandidateFilter | None = None
) -> ViewedTrajectory:
    """Raises StoreError where there is none."""
    row = store.trajectory(trajectory_id)
    graph = lineage(store, trajectory_id)
    own = [
        data["entry"]
        for _, data in graph.nodes(data=True)
        if data["entry"].candidate.trajectory_id == row.id
    ]
    own.sort(key=lambda entry: entry.candidate.turn)
    fitting = [entry.candidate.id for entry in own]
    if is_filtering(wanted):
        assert wanted is not None
        chosen = wanted.model_copy(update={"trajectory_id": trajectory_id})
        fitting = [
            entry.candidate.id for entry in store.candidates(chosen, order=Order.OLDEST, limit=None)
        ]
    return ViewedTrajectory(row, tuple(own), graph, best_candidate(graph), frozenset(fitting))


def is_filtering(wanted: CandidateFilter | None) -> bool:
    """Says whether a filter leaves anything out."""
    return wanted is not None and wanted != CandidateFilter()


def list_trajectories(
    store: Store,
    wanted: CandidateFilter | None = None,
    *,
    before: int | None = None,
    limit: int = 50,
) -> list[tuple[Trajectory, Sequence[Entry]]]:
    """Trajectories, the newest first, each with its turns. `before`: the id of the last one seen."""
    rows = store.trajectories(_chosen(wanted), before=before, limit=limit)
    return [
        (
            row,
            store.candidates(CandidateFilter(trajectory_id=row.id), order=Order.OLDEST, limit=None),
        )
        for row in rows
    ]


def neighbouring_trajectory(
    store: Store, trajectory_id: int, step: int, wanted: CandidateFilter | None = None
) -> int | None:
    """The next (`step` 1) or previous (-1) trajectory by number that the filter wants."""
    found = store.trajectories(_chosen(wanted), before=trajectory_id, limit=1, newest=step < 0)
    return found[0].id if found else None


def newest_trajectory(store: Store, wanted: CandidateFilter | None = None) -> int | None:
    """Returns the newest trajectory that has a candidate of this filter; None where there is none."""
    found = store.trajectories(_chosen(wanted), limit=1)
    return found[0].id if found else None


def _chosen(wanted: CandidateFilter | None) -> TrajectoryFilter:
    """Returns the trajectories that the filter leaves; without a filter also those that have no turn yet."""
    return wanted if wanted is not None and is_filtering(wanted) else TrajectoryFilter()


def trajectory_verdict_words(entries: Sequence[Entry]) -> tuple[str, bool]:
    """`correct 1.32x`, `mismatch`: the best turn in two words, and whether it is correct."""
    chosen = best_entry(entries)
    return verdict_words(chosen) if chosen is not None else ("not judged", False)


def verdict_words(entry: Entry) -> tuple[str, bool]:
    """The verdict of one candidate in two words, and whether it is correct."""
    verdict = entry.verdict
    if verdict is None:
        return entry.candidate.state.value, False
    if not verdict.correct:
        return (verdict.fault.value if verdict.fault else "incorrect").replace("_", " "), False
    speed = f" {verdict.speedup:.3g}x" if verdict.speedup is not None else ""
    return f"correct{speed}" + (" on a CPU" if verdict.judged_on == "cpu" else ""), True


MAX_INDENT_COLUMNS = 24
"""Columns of indentation; what is deeper is not moved further to the right."""


def tree_lines(viewed: ViewedTrajectory, shown: int | None = None) -> list[tuple[int, Text]]:
    """Candidate and line, from top to bottom. `shown`: the candidate that is looked at now."""
    roots = sorted(node for node in viewed.graph if not list(viewed.graph.predecessors(node)))
    return [
        (id, _line(viewed, id, rails, shown))
        for root in roots
        for id, rails in _walk(viewed.graph, root)
    ]


def _walk(graph: Any, root: int) -> Iterator[tuple[int, str]]:
    """Each candidate below with what is drawn left of it, depth first."""
    waiting: list[tuple[int, str, str]] = [(root, "", "")]
    while waiting:
        id, own, below = waiting.pop()
        yield id, own
        children = sorted(graph.successors(id))
        if len(children) == 1:
            waiting.append((children[0], below, below))
            continue
        room = len(below) < MAX_INDENT_COLUMNS
        for child in reversed(children):
            last = child == children[-1]
            corner, rail = ("└─", "  ") if last else ("├─", "│ ")
            waiting.append((child, below + corner, below + rail) if room else (child, below, below))


def _line(viewed: ViewedTrajectory, id: int, rails: str, shown: int | None) -> Text:
    entry: Entry = viewed.graph.nodes[id]["entry"]
    text, correct = verdict_words(entry)
    style = GOOD if correct else QUIET if entry.verdict is None else BAD
    foreign = entry.candidate.trajectory_id != viewed.row.id
    name = f"{entry.candidate.turn + 1} {entry.candidate.action.value}"
    if entry.candidate.origin is not Origin.POLICY:
        name += f" ({entry.candidate.origin.value})"
    line = Text.assemble(
        (">" if id == shown else " ", WARN),
        (rails, QUIET),
        name,
        " ",
        (text.removesuffix(" on a CPU"), style),
        (" *" if id == viewed.best_id else "", WARN),
        (f" (trajectory {entry.candidate.trajectory_id})" if foreign else "", QUIET),
    )
    if id == shown:
        line.stylize("bold")
    elif not foreign and id not in viewed.fitting:
        line.stylize("dim")
    return line

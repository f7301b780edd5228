"""A trajectory for the viewer (rows and lineage, without texts), and its lineage drawn as a tree.

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
    """Turns of this trajectory (without a fork's ancestors), in their order."""
    graph: Any
    """Graph of store.lineage.lineage, with a fork's ancestors in another trajectory."""
    best_id: int | None
    fitting: frozenset[int]
    """Ids of the fitting candidates."""

    @property
    def target(self) -> str:
        """First compilation target of the trajectory's candidates."""
        targets = self.row.options.get("targets") or ("sm_90",)
        return str(targets[0])

    def index_of(self, candidate_id: int) -> int | None:
        """Returns the index of a candidate's entry; None if it is not in this trajectory."""
        for index, entry in enumerate(self.entries):
            if entry.candidate.id == candidate_id:
                return index
        return None

    def fitting_indices(self) -> list[int]:
        """Returns the indices of the fitting entries."""
        return [
            index for index, entry in enumerate(self.entries) if entry.candidate.id in self.fitting
        ]


def read_viewed_trajectory(
    store: Store, trajectory_id: int, candidate_filter: CandidateFilter | None = None
) -> ViewedTrajectory:
    """Reads a trajectory. Raises StoreError if there is none of this number."""
    row = store.trajectory(trajectory_id)
    graph = lineage(store, trajectory_id)
    own_entries: list[Entry] = []
    for _, data in graph.nodes(data=True):
        if data["entry"].candidate.trajectory_id == row.id:
            own_entries.append(data["entry"])
    own_entries.sort(key=lambda entry: entry.candidate.turn)
    fitting = [entry.candidate.id for entry in own_entries]
    if is_filtering(candidate_filter):
        assert candidate_filter is not None
        chosen = candidate_filter.model_copy(update={"trajectory_id": trajectory_id})
        entries = store.candidates(chosen, order=Order.OLDEST, limit=None)
        fitting = [entry.candidate.id for entry in entries]
    return ViewedTrajectory(
        row, tuple(own_entries), graph, best_candidate(graph), frozenset(fitting)
    )


def is_filtering(candidate_filter: CandidateFilter | None) -> bool:
    """Returns whether a filter hides anything."""
    return candidate_filter is not None and candidate_filter != CandidateFilter()


def list_trajectories(
    store: Store,
    candidate_filter: CandidateFilter | None = None,
    *,
    before: int | None = None,
    limit: int = 50,
) -> list[tuple[Trajectory, Sequence[Entry]]]:
    """Returns trajectories, the newest first, each with its turns. `before`: id of the last
    trajectory of the previous page.
    """
    listed: list[tuple[Trajectory, Sequence[Entry]]] = []
    for row in store.trajectories(_chosen(candidate_filter), before=before, limit=limit):
        turns_of_row = CandidateFilter(trajectory_id=row.id)
        listed.append((row, store.candidates(turns_of_row, order=Order.OLDEST, limit=None)))
    return listed


def neighbouring_trajectory(
    store: Store, trajectory_id: int, step: int, candidate_filter: CandidateFilter | None = None
) -> int | None:
    """Returns the next (`step` 1) or previous (-1) trajectory by number that fits the filter."""
    trajectories = store.trajectories(
        _chosen(candidate_filter), before=trajectory_id, limit=1, newest=step < 0
    )
    return trajectories[0].id if trajectories else None


def newest_trajectory(store: Store, candidate_filter: CandidateFilter | None = None) -> int | None:
    """Returns the newest trajectory with a candidate that fits the filter; None if there is none."""
    trajectories = store.trajectories(_chosen(candidate_filter), limit=1)
    return trajectories[0].id if trajectories else None


def _chosen(candidate_filter: CandidateFilter | None) -> TrajectoryFilter:
    """Converts to a filter of trajectories; without a filter, trajectories without turns are
    included.
    """
    return (
        candidate_filter
        if candidate_filter is not None and is_filtering(candidate_filter)
        else TrajectoryFilter()
    )


def trajectory_verdict_words(entries: Sequence[Entry]) -> tuple[str, bool]:
    """Describes the best turn in two words (`correct 1.32x`, `mismatch`), and returns whether it
    is correct.
    """
    chosen = best_entry(entries)
    return verdict_words(chosen) if chosen is not None else ("not judged", False)


def verdict_words(entry: Entry) -> tuple[str, bool]:
    """Describes the verdict of a candidate in two words, and returns whether it is correct."""
    verdict = entry.verdict
    if verdict is None:
        return entry.candidate.state.value, False
    if not verdict.correct:
        return (verdict.fault.value if verdict.fault else "incorrect").replace("_", " "), False
    speed = f" {verdict.speedup:.3g}x" if verdict.speedup is not None else ""
    return f"correct{speed}" + (" on a CPU" if verdict.judged_on == "cpu" else ""), True


MAX_INDENT_COLUMNS = 24
"""Maximum indentation in columns; deeper candidates are not moved further to the right."""


def tree_lines(viewed: ViewedTrajectory, shown: int | None = None) -> list[tuple[int, Text]]:
    """Draws the lineage as a tree, from top to bottom; returns candidates with their lines.
    `shown`: the displayed candidate.

    Example, a draft with two repairs of which the second was refined:

        1 draft mismatch
        ├─2 repair mismatch
        └─3 repair correct 1.1x
          4 refine correct 1.3x *
    """
    roots = sorted(node for node in viewed.graph if not list(viewed.graph.predecessors(node)))
    lines = []
    for root in roots:
        for id, rails in _walk(viewed.graph, root):
            lines.append((id, _line(viewed, id, rails, shown)))
    return lines


def _walk(graph: Any, root: int) -> Iterator[tuple[int, str]]:
    """Yields each candidate below the root with the rails drawn left of it, depth first."""
    waiting: list[tuple[int, str, str]] = [(root, "", "")]
    while waiting:
        id, rails, child_rails = waiting.pop()
        yield id, rails
        children = sorted(graph.successors(id))
        if len(children) == 1:
            # An only child stands below its parent: a long chain of turns needs no indentation.
            waiting.append((children[0], child_rails, child_rails))
            continue
        room = len(child_rails) < MAX_INDENT_COLUMNS
        for child in reversed(children):
            last = child == children[-1]
            corner, rail = ("└─", "  ") if last else ("├─", "│ ")
            waiting.append(
                (child, child_rails + corner, child_rails + rail)
                if room
                else (child, child_rails, child_rails)
            )


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

"""The tree of candidates by parent (a forest, where several drafts were made)."""

from __future__ import annotations

import math

import networkx as nx

from kernelwright.store.database import Store
from kernelwright.store.models import Trajectory
from kernelwright.store.records import CandidateFilter, Entry, Order, Turn


def lineage(store: Store, trajectory_id: int) -> nx.DiGraph:
    """Returns a graph with an edge from each parent to its child. Nodes are candidate ids, with the `entry` of each;
    the ancestors of a fork are included.
    """
    graph = nx.DiGraph()
    own = store.candidates(
        CandidateFilter(trajectory_id=trajectory_id), order=Order.OLDEST, limit=None
    )
    for entry in own:
        _add(graph, entry)
    missing = [parent for parent in graph if "entry" not in graph.nodes[parent]]
    while missing:
        entry = store.candidate(missing.pop())
        _add(graph, entry)
        missing += [
            id for id in graph.predecessors(entry.candidate.id) if "entry" not in graph.nodes[id]
        ]
    return graph


def history(store: Store, trajectory: Trajectory) -> list[Turn]:
    """The turns of a trajectory, after those that it has from where it was forked (their `trajectory_id` is
    another).
    """
    own = store.turns(trajectory.id)
    if trajectory.forked_from_id is None:
        return own
    origin = store.candidate(trajectory.forked_from_id)
    before = history(store, origin.trajectory)
    return [turn for turn in before if turn.turn <= origin.candidate.turn] + own


def _add(graph: nx.DiGraph, entry: Entry) -> None:
    candidate = entry.candidate
    graph.add_node(candidate.id, entry=entry)
    if candidate.parent_id is not None:
        graph.add_edge(candidate.parent_id, candidate.id)


def best_candidate(graph: nx.DiGraph) -> int | None:
    """The fastest of those that are correct; where none was timed the first that is correct; None where none is."""
    correct = [
        id
        for id in sorted(graph)
        if (verdict := graph.nodes[id]["entry"].verdict) is not None and verdict.correct
    ]
    return max(correct, key=lambda id: _speed(graph, id), default=None)


def _speed(graph: nx.DiGraph, id: int) -> float:
    speedup = graph.nodes[id]["entry"].verdict.speedup
    return -math.inf if speedup is None else speedup

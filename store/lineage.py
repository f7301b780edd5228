"""Trees of candidates, linked by parent. Several drafts form a forest."""

from __future__ import annotations

import math

import networkx as nx

from kernelwright.store.database import Store
from kernelwright.store.models import Trajectory
from kernelwright.store.records import CandidateFilter, Entry, Order, Turn


def lineage(store: Store, trajectory_id: int) -> nx.DiGraph:
    """Returns a graph with an edge from each parent to its child, including ancestors before a
    fork. Nodes are candidate ids with the attribute `entry`.
    """
    graph = nx.DiGraph()
    trajectory_entries = store.candidates(
        CandidateFilter(trajectory_id=trajectory_id), order=Order.OLDEST, limit=None
    )
    for entry in trajectory_entries:
        _add(graph, entry)
    # Parents outside of the trajectory are ancestors before a fork: load them one by one.
    missing = [parent for parent in graph if "entry" not in graph.nodes[parent]]
    while missing:
        entry = store.candidate(missing.pop())
        _add(graph, entry)
        missing += [
            id for id in graph.predecessors(entry.candidate.id) if "entry" not in graph.nodes[id]
        ]
    return graph


def history(store: Store, trajectory: Trajectory) -> list[Turn]:
    """Returns the turns of a trajectory, preceded by the turns inherited at its fork (these have
    another `trajectory_id`).
    """
    trajectory_turns = store.turns(trajectory.id)
    if trajectory.forked_from_id is None:
        return trajectory_turns
    origin = store.candidate(trajectory.forked_from_id)
    before = history(store, origin.trajectory)
    return [turn for turn in before if turn.turn <= origin.candidate.turn] + trajectory_turns


def _add(graph: nx.DiGraph, entry: Entry) -> None:
    candidate = entry.candidate
    graph.add_node(candidate.id, entry=entry)
    if candidate.parent_id is not None:
        graph.add_edge(candidate.parent_id, candidate.id)


def best_candidate(graph: nx.DiGraph) -> int | None:
    """Returns the fastest correct candidate.

    Untimed candidates rank last, in order of id. None if no candidate is correct.
    """
    correct = [
        id
        for id in sorted(graph)
        if (verdict := graph.nodes[id]["entry"].verdict) is not None and verdict.correct
    ]
    return max(correct, key=lambda id: _speed(graph, id), default=None)


def _speed(graph: nx.DiGraph, id: int) -> float:
    speedup = graph.nodes[id]["entry"].verdict.speedup
    return -math.inf if speedup is None else speedup

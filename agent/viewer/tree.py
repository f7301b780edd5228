"""The lineage as a tree with the speedup at each node. A chain goes straight down; only where several come from one it is indented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from agent.show.words import BAD, GOOD, QUIET, WARN
from agent.viewer.trail import Trail, said
from store.records import Entry

DEEPEST = 24
"""Columns of indentation; what is deeper is not moved further to the right."""


def tree_lines(trail: Trail, shown: int | None = None) -> list[tuple[int, Text]]:
    """Candidate and line, from top to bottom. `shown`: the candidate that is looked at now."""
    roots = sorted(node for node in trail.graph if not list(trail.graph.predecessors(node)))
    return [(id, _line(trail, id, rails, shown)) for root in roots for id, rails in _walk(trail.graph, root)]


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
        room = len(below) < DEEPEST
        for child in reversed(children):
            last = child == children[-1]
            corner, rail = ("└─", "  ") if last else ("├─", "│ ")
            waiting.append((child, below + corner, below + rail) if room else (child, below, below))


def _line(trail: Trail, id: int, rails: str, shown: int | None) -> Text:
    entry: Entry = trail.graph.nodes[id]["entry"]
    text, correct = said(entry)
    style = GOOD if correct else QUIET if entry.verdict is None else BAD
    foreign = entry.candidate.trajectory_id != trail.row.id
    name = f"{entry.candidate.turn + 1} {entry.candidate.action.value}"
    line = Text.assemble(
        (">" if id == shown else " ", WARN),
        (rails, QUIET),
        name,
        " ",
        (text.removesuffix(" on a CPU"), style),
        (" *" if id == trail.best_id else "", WARN),
        (f" (trajectory {entry.candidate.trajectory_id})" if foreign else "", QUIET),
    )
    if id == shown:
        line.stylize("bold")
    elif not foreign and id not in trail.fitting:
        line.stylize("dim")
    return line

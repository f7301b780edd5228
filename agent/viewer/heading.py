"""The viewer's first and last lines, and the lines of what a search found."""

from __future__ import annotations

from rich.text import Text

from agent.show.words import BAD, GOOD, LABEL, QUIET, WARN, data
from agent.viewer.keys import HINTS
from agent.viewer.position import Position
from agent.viewer.trail import said
from agent.viewer.views import View
from store.records import Found

FOUND = ("trajectory", "turn", "problem", "verdict", "where")


def heading(position: Position, view: View, following: bool) -> Text:
    """`3 fused_softmax  turn 2 of 5 repair  mismatch  [diff]  stopped: turns`."""
    row, trail = position.trail.row, position.trail
    parts: list[Text] = [Text.assemble((str(row.id), LABEL), " ", data(row.problem, "bold", 60))]
    if (entry := position.entry) is not None:
        verdict, correct = said(entry)
        last = trail.entries[-1].candidate.turn + 1
        parts.append(Text(f"turn {entry.candidate.turn + 1} of {last}, {entry.candidate.action.value}"))
        parts.append(Text(verdict, GOOD if correct else BAD))
    if view is not View.TURN:
        parts.append(Text(f"[{view.value}]", LABEL))
    if position.filtered:
        parts.append(Text(f"[filter: {len(trail.fitting)} of {len(trail.entries)}]", WARN))
    if following:
        parts.append(Text("[following]", WARN))
    parts.append(data(row.policy, QUIET, 60))
    parts.append(Text((row.stop_reason or "not finished").replace("_", " "), QUIET))
    line = Text("  ").join(parts)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def hints() -> Text:
    return Text(HINTS, QUIET, no_wrap=True, overflow="ellipsis")


def found_cells(found: Found) -> tuple[Text, ...]:
    """As FOUND says."""
    candidate, trajectory, _ = found.entry
    verdict, correct = said(found.entry)
    words = (str(trajectory.id), str(candidate.turn + 1), trajectory.problem)
    return (
        *(data(word, limit=40) for word in words),
        Text(verdict, GOOD if correct else BAD),
        data(found.excerpt, QUIET, 100),
    )

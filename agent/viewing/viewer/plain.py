"""The viewer's contents as plain text and as JSON: renderables and values for the command to
print.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.agent.reporting.trajectory_report import trajectory_facts
from kernelwright.agent.reporting.verdicts.verdict import report_view
from kernelwright.agent.reporting.viewed_trajectory import (
    ViewedTrajectory,
    list_trajectories,
    trajectory_verdict_words,
    tree_lines,
)
from kernelwright.agent.reporting.words import BAD, GOOD, LABEL, QUIET, facts_table, quoted_text
from kernelwright.agent.viewing.viewer.views import (
    MAX_VIEW_CHARACTERS,
    View,
    answer_text,
    diff_view,
    long_text,
    prompt_view,
    turn_facts,
    view_of,
)
from kernelwright.errors import InputError
from kernelwright.policies.base import Message
from kernelwright.store.database import Store
from kernelwright.store.lease import is_worked_on
from kernelwright.store.models import Trajectory
from kernelwright.store.records import CandidateFilter, Turn

HEADINGS = ("id", "run", "problem", "policy", "turns", "best", "stopped")


def list_table(
    store: Store, candidate_filter: CandidateFilter | None, limit: int
) -> RenderableType:
    """Renders a table of trajectories, the newest first."""
    rows = list_trajectories(store, candidate_filter, limit=limit)
    if not rows:
        return Text("nothing fits the filter", style=QUIET)
    table = Table(box=None, header_style=LABEL, padding=(0, 2, 0, 0))
    for name in HEADINGS:
        table.add_column(name, justify="right" if name in ("id", "turns") else "left", no_wrap=True)
    for cells in list_rows(store, rows):
        table.add_row(*cells)
    return table


def list_rows(
    store: Store, rows: Sequence[tuple[Any, Sequence[Any]]]
) -> Iterator[tuple[Text, ...]]:
    """Yields the rows of the list in the order of HEADINGS."""
    names = {run.id: run.name for run in store.runs()}
    for row, entries in rows:
        best, correct = trajectory_verdict_words(entries)
        stopped = (row.stop_reason or _unstopped(row)).replace("_", " ")
        words = (
            str(row.id),
            names.get(row.run_id, "-"),
            row.problem,
            row.policy,
            str(len(entries)),
        )
        yield (
            *(quoted_text(word, limit=60) for word in words),
            Text(best, style=GOOD if correct else BAD),
            Text(stopped),
        )


def _unstopped(row: Trajectory) -> str:
    """Describes a trajectory without a stop reason: running, killed, or not started."""
    if is_worked_on(row.owner, row.lease):
        return "running"
    return "cut off" if row.owner else "not yet"


def whole_trajectory_view(store: Store, viewed: ViewedTrajectory) -> Iterator[RenderableType]:
    """Yields the trajectory from its first turn to its last; of each prompt only the part that
    the previous prompt lacks.
    """
    yield heading_view(viewed)
    before: tuple[Message, ...] = ()
    for entry in viewed.entries:
        if entry.candidate.id not in viewed.fitting:
            continue
        turn = store.turn(entry.candidate.id)
        yield Text()
        yield Text(f"=== turn {turn.turn + 1}: {turn.action.value} ".ljust(72, "="), style="bold")
        yield facts_table(turn_facts(turn, viewed))
        yield from _prompt(turn.messages, before)
        yield Text("--- answer", style=LABEL)
        yield answer_text(turn)
        if turn.parent_id is not None and turn.source:
            yield Text("--- diff", style=LABEL)
            yield diff_view(turn, store.turn(turn.parent_id))
        yield Text("--- verdict", style=LABEL)
        yield report_view(turn.report) if turn.report else Text("not judged yet", style=QUIET)
        before = turn.messages


def heading_view(viewed: ViewedTrajectory) -> RenderableType:
    """Renders the facts of a trajectory above its turns."""
    numbers = {entry.candidate.id: entry.candidate.turn + 1 for entry in viewed.entries}
    tree = Text("\n").join(line for _, line in tree_lines(viewed)) or Text(
        "no turn yet", style=QUIET
    )
    facts = [
        (label, quoted_text(value, limit=400))
        for label, value in trajectory_facts(viewed.row, numbers)
    ]
    return facts_table(
        [
            ("problem", quoted_text(viewed.row.problem, "bold")),
            *facts,
            ("lineage", _unindented(tree)),
        ]
    )


def lineage_facts(viewed: ViewedTrajectory) -> Text:
    """Returns the facts of the whole trajectory, to show under its lineage."""
    numbers = {entry.candidate.id: entry.candidate.turn + 1 for entry in viewed.entries}
    facts = [
        fact
        for fact in trajectory_facts(viewed.row, numbers)
        if fact[0] not in ("trajectory", "best")
    ]
    return Text("\n").join(
        Text.assemble((f"{label} ", LABEL), quoted_text(value, limit=400)) for label, value in facts
    )


def _unindented(tree: Text) -> Text:
    """Returns the lines without the column that marks the current turn."""
    return Text("\n").join(line[1:] for line in tree.split("\n"))


def _prompt(messages: tuple[Message, ...], before: tuple[Message, ...]) -> Iterator[RenderableType]:
    same = 0
    while same < min(len(messages), len(before)) and messages[same] == before[same]:
        same += 1
    if same:
        yield Text(
            f"--- prompt: the first {same} message{'' if same == 1 else 's'} as in the turn before",
            style=QUIET,
        )
    for message in messages[same:]:
        yield Text(f"--- {message.role.value}", style=LABEL)
        yield long_text(message.content)


def one_view(view: View, store: Store, viewed: ViewedTrajectory, turn: Turn) -> RenderableType:
    """Renders a turn as the viewer does; code is the code alone, fit for a file. Raises
    InputError if the turn has no code.
    """
    if view is View.CODE:
        if not turn.source:
            raise InputError(f"turn {turn.turn + 1} of trajectory {viewed.row.id} holds no code")
        return quoted_text(turn.source.rstrip("\n"), limit=MAX_VIEW_CHARACTERS)
    return prompt_view(turn) if view is View.PROMPT else view_of(view, store, viewed, turn)


def chosen_turn(store: Store, viewed: ViewedTrajectory, number: int | None) -> Turn:
    """Returns the turn with a number from 1; None selects the best turn, else the last. Raises
    InputError.
    """
    if not viewed.entries:
        raise InputError(f"trajectory {viewed.row.id} has no turn yet")
    numbers = [entry.candidate.turn + 1 for entry in viewed.entries]
    if number is None:
        best_index = None if viewed.best_id is None else viewed.index_of(viewed.best_id)
        return store.turn(viewed.entries[-1 if best_index is None else best_index].candidate.id)
    if number not in numbers:
        raise InputError(
            f"trajectory {viewed.row.id} has no turn {number}: choose {numbers[0]} to {numbers[-1]}"
        )
    return store.turn(viewed.entries[numbers.index(number)].candidate.id)


def trajectory_json(store: Store, viewed: ViewedTrajectory, number: int | None) -> dict[str, Any]:
    """Returns the row, the lineage, and each turn without token ids and log-probabilities (agent
    export --format jsonl has them).
    """
    entries = [entry for entry in viewed.entries if entry.candidate.id in viewed.fitting]
    if number is not None:
        entries = [entry for entry in entries if entry.candidate.turn + 1 == number]
    return {
        "trajectory": viewed.row.model_dump(mode="json"),
        "best": viewed.best_id,
        "lineage": [list(edge) for edge in viewed.graph.edges],
        "turns": [_turn_json(store.turn(entry.candidate.id)) for entry in entries],
    }


def _turn_json(turn: Turn) -> dict[str, Any]:
    tokens = {"prompt_token_ids", "token_ids", "logprobs"}
    return turn.model_dump(mode="json", exclude={"completion": tokens})


def list_json(
    store: Store, candidate_filter: CandidateFilter | None, limit: int
) -> list[dict[str, Any]]:
    """Returns the newest trajectories as values for JSON."""
    names = {run.id: run.name for run in store.runs()}
    rows_json = []
    for row, entries in list_trajectories(store, candidate_filter, limit=limit):
        best, correct = trajectory_verdict_words(entries)
        fields = (
            "id",
            "problem",
            "suite",
            "policy",
            "stop_reason",
            "created",
            "finished",
            "best_id",
        )
        facts = {name: getattr(row, name) for name in fields}
        rows_json.append(
            {
                **facts,
                "run": names.get(row.run_id or 0),
                "turns": len(entries),
                "best": best,
                "correct": correct,
            }
        )
    return rows_json

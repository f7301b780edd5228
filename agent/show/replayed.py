"""Replays for people: a line a turn as the live view has it, and under it what drifted."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent.drift import Change
from agent.rejudging import Replays
from agent.replaying import Replayed, ReplayedTurn
from agent.show.words import BAD, GOOD, LABEL, QUIET, WARN, data, facts, times
from tools.results import Environment


def replays_view(replays: Replays) -> RenderableType:
    """Each trajectory whole where there is one, a line each where there are many; then the sum."""
    if not replays.run and len(replays.trajectories) == 1:
        parts = [trajectory_view(replays.trajectories[0], replays.executed)]
    else:
        parts = [_many(replays)]
    return Group(*parts, facts(_sum(replays)))


def trajectory_view(replayed: Replayed, executed: bool) -> RenderableType:
    origin = f", forked after candidate {replayed.forked_from_id}" if replayed.forked_from_id is not None else ""
    head = Text.assemble(
        (f"trajectory {replayed.trajectory_id}  ", LABEL), data(replayed.problem), f", {replayed.policy}{origin}"
    )
    parts: list[RenderableType] = [head]
    for turn in replayed.turns:
        parts += _turn(turn, executed and not turn.judged, turn.trajectory_id != replayed.trajectory_id)
    why = replayed.stop_reason.replace("_", " ") or "not finished"
    rows = [("stopped", data(why + (f": {replayed.message}" if replayed.message else "")))]
    if replayed.unjudged:
        rows.append(("unjudged", Text(f"{replayed.unjudged} turns: the command that wrote them goes on there")))
    return Group(*parts, facts(rows))


def _turn(turn: ReplayedTurn, kept: bool, inherited: bool) -> list[RenderableType]:
    verdict = ("correct", GOOD) if turn.correct else ((turn.fault or "not correct").replace("_", " "), BAD)
    best = "none" if turn.best is None else f"turn {turn.best + 1}"
    line = Text.assemble(
        (f"turn {turn.turn + 1:<3} {turn.action:<6}  candidate {turn.candidate_id:<5} ", QUIET),
        (f"{' > '.join(turn.states):<31} ", QUIET), (f"{turn.rung:<11} ", LABEL), verdict,
        f" {times(turn.speedup)}" if turn.speedup is not None else "", (f"  best {best}", QUIET),
    )  # fmt: skip
    if turn.repeats is not None:
        line.append(f"  the same as turn {turn.repeats + 1}", QUIET)
    if inherited:
        line.append("  from the trajectory it was forked from", QUIET)
    elif kept:
        line.append("  not run again", QUIET)
    under = [_changed(change) for change in turn.drift.changes]
    if turn.drift.note:
        under.append(Text(turn.drift.note, QUIET))
    if turn.departure:
        under.append(Text.assemble("today's machine would go on otherwise: ", (turn.departure, WARN)))
    if turn.message and not turn.correct:
        under.insert(0, data(turn.message, QUIET))
    return [line, *(Text.assemble("         ", text) for text in under)]


def _changed(change: Change) -> Text:
    of = f" of {change.of}" if change.of else ""
    return Text.assemble((f"drift  {change.aspect}{of}: ", WARN), data(change.was), " -> ", data(change.now))


def _many(replays: Replays) -> Table:
    table = Table(box=None, header_style=LABEL, padding=(0, 2, 0, 0))
    for name in ("trajectory", "problem", "turns", "best", "stopped", "verdicts that differ", "other drift", "saved"):
        table.add_column(name, justify="left" if name in ("problem", "stopped") else "right")
    for replayed in replays.trajectories:
        best = next((t for t in replayed.turns if t.candidate_id == replayed.best_candidate_id), None)
        other = sum(bool(turn.drift.changes) and not turn.drift.verdict_changed for turn in replayed.turns)
        changed = Text(str(replayed.verdicts_changed), BAD if replayed.verdicts_changed else "")
        table.add_row(
            str(replayed.trajectory_id), data(replayed.problem, limit=50), str(len(replayed.turns)),
            "-" if best is None else f"turn {best.turn + 1}", replayed.stop_reason.replace("_", " ") or "not finished",
            changed, str(other), str(replayed.rescored),
        )  # fmt: skip
    return table


def _sum(replays: Replays) -> list[tuple[str, object]]:
    if not replays.executed:
        return []
    judged = sum(turn.judged for replayed in replays.trajectories for turn in replayed.turns)
    changed = replays.verdicts_changed
    said = f"{changed} of {judged} verdicts differ" if changed else f"none: {judged} verdicts are what they were"
    rows: list[tuple[str, object]] = [
        ("drift", Text(said, BAD if changed else GOOD)),
        ("tools", _tools(replays.tools) if replays.tools else ""),
        ("saved", f"{replays.saved} new verdicts, the old ones kept" if replays.saved else ""),
    ]
    if replays.interrupted:
        rows.append(("note", Text("interrupted: what was saved stays, the rest was not looked at", WARN)))
    return rows


def _tools(tools: Environment) -> str:
    return f"evaluator {tools.evaluator}, torch {tools.torch}, triton {tools.triton}, {tools.gpu or 'CPU'}"

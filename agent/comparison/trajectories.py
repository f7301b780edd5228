"""Compares trajectories turn by turn with the first: the turn of divergence, and the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from kernelwright.agent.comparison.sides import Side, side_of
from kernelwright.policies.base import Value
from kernelwright.store.database import Store
from kernelwright.store.models import Candidate, Trajectory, Verdict
from kernelwright.store.records import CandidateFilter, Entry, Order


class DivergenceKind(StrEnum):
    """Kinds of divergence between two trajectories."""

    PROBLEM = "other_problem"
    PROMPT = "other_prompt"
    REPLY = "other_program"
    """Equal prompts received different programs."""
    WORDS = "other_words"
    """Equal prompts received equal programs (by syntax tree) in different replies."""
    VERDICT = "other_verdict"
    """Equal programs received different verdicts: another machine, other tools, or chance."""
    GOES_ON = "goes_on"
    """All turns of the shorter trajectory are equal; the longer continues."""
    SAME = "same"


class Divergence(Value):
    """Point at which a trajectory diverges from the first."""

    kind: DivergenceKind
    turn: int | None = None
    """Turn of divergence, from 1; None if they never diverge or have different problems."""
    because: tuple[str, ...] = ()
    """Differing settings of the turn, such as `seed 7 against 8`."""
    programs_part: int | None = None
    """First turn with different programs."""


class Cell(Value):
    """Turn of a trajectory in the comparison table."""

    candidate_id: int
    action: str
    origin: str
    """Author of the candidate: policy, compiler or file."""
    parent: int | None
    """Number of the turn that this turn repairs or refines."""
    verdict: str
    correct: bool
    rung: str
    speedup: float | None
    same_as: int | None
    """Turn of the first trajectory with an equal program."""


class TurnRow(Value):
    """Row of the comparison: a turn of all trajectories."""

    number: int
    cells: tuple[Cell | None, ...]
    """A cell per side in order; None if a side lacks the turn."""


class ComparedTrajectories(Value):
    """Comparison of trajectories, turn by turn."""

    sides: tuple[Side, ...]
    partings: tuple[Divergence, ...]
    """Divergence of each further side from the first."""
    turns: tuple[TurnRow, ...]


def compare_trajectories(store: Store, ids: Sequence[int]) -> ComparedTrajectories:
    """Compares trajectories. Raises StoreError if an id is unknown."""
    rows = [store.trajectory(id) for id in ids]
    entries = [turns_of(store, id) for id in ids]
    names = {run.id: run.name for run in store.runs()}
    read = zip(rows, entries, strict=True)
    sides = tuple(
        side_of(row, side_entries, names.get(row.run_id or 0, ""), _forked(store, row))
        for row, side_entries in read
    )
    other_sides = zip(sides[1:], entries[1:], strict=True)
    return ComparedTrajectories(
        sides=sides,
        partings=tuple(
            find_divergence(sides[0], entries[0], side, side_entries)
            for side, side_entries in other_sides
        ),
        turns=_turns(entries),
    )


def _forked(store: Store, row: Trajectory) -> str:
    if row.forked_from_id is None:
        return ""
    origin = store.candidate(row.forked_from_id)
    return f"turn {origin.candidate.turn + 1} of {origin.trajectory.id}"


def turns_of(store: Store, trajectory_id: int) -> list[Entry]:
    """Returns all turns of a trajectory, oldest first."""
    return store.candidates(
        CandidateFilter(trajectory_id=trajectory_id), order=Order.OLDEST, limit=None
    )


def find_divergence(
    first: Side, first_entries: Sequence[Entry], other: Side, other_entries: Sequence[Entry]
) -> Divergence:
    """Returns the first divergence of two trajectories.

    Turns are aligned by number, which forks continue.
    """
    if first.problem_hash != other.problem_hash:
        return Divergence(kind=DivergenceKind.PROBLEM)
    first_turns, other_turns = _by_turn(first_entries), _by_turn(other_entries)
    common = sorted(first_turns.keys() & other_turns.keys())
    programs_part: int | None = None
    for number in common:
        first_program = first_turns[number].candidate.source_hash
        if first_program != other_turns[number].candidate.source_hash:
            programs_part = number
            break
    for number in common:
        first_entry, other_entry = first_turns[number], other_turns[number]
        kind = _difference(first_entry, other_entry)
        if kind is not None:
            because = _differing_settings(first_entry.candidate, other_entry.candidate)
            return Divergence(kind=kind, turn=number, because=because, programs_part=programs_part)
    shorter, longer = sorted(max(turns, default=0) for turns in (first_turns, other_turns))
    if shorter == longer:
        return Divergence(kind=DivergenceKind.SAME)
    return Divergence(kind=DivergenceKind.GOES_ON, turn=shorter + 1)


def _by_turn(entries: Sequence[Entry]) -> dict[int, Entry]:
    """Returns the candidates of a trajectory by the number of their turn, from 1."""
    return {entry.candidate.turn + 1: entry for entry in entries}


def _difference(first: Entry, second: Entry) -> DivergenceKind | None:
    """Returns the kind of difference between two turns.

    Texts are stored once, so equal ids mean equal texts.
    """
    a, b = first.candidate, second.candidate
    if a.prompt_id != b.prompt_id:
        return DivergenceKind.PROMPT
    if a.reply_id != b.reply_id:
        # Without code there is no hash, and two such replies count as different programs.
        same_program = a.source_hash == b.source_hash and a.source_hash
        return DivergenceKind.WORDS if same_program else DivergenceKind.REPLY
    return DivergenceKind.VERDICT if _verdict_key(first) != _verdict_key(second) else None


def _verdict_key(entry: Entry) -> tuple[Any, ...]:
    """Returns the comparable parts of a verdict: all except speed, which varies between
    measurements.
    """
    verdict = entry.verdict
    if verdict is None:
        return ()
    return (verdict.correct, verdict.rung, verdict.fault, verdict.cheat, verdict.judged_on)


def _differing_settings(first: Candidate, second: Candidate) -> tuple[str, ...]:
    """Returns the differing settings of two candidates in words; empty if none differ."""
    a, b = _settings_of_row(first), _settings_of_row(second)
    differences: list[str] = []
    for name in dict.fromkeys([*a, *b]):
        if a.get(name) != b.get(name):
            values = f"{_value(a.get(name))} against {_value(b.get(name))}"
            differences.append(f"{name.replace('_', ' ')} {values}")
    return tuple(differences)


def _settings_of_row(row: Candidate) -> dict[str, Any]:
    names = ("action", "policy", "policy_revision", "adapter", "adapter_revision", "prompt_version")
    return {**{name: getattr(row, name) for name in names}, **row.sampling}


def _value(value: object) -> str:
    return "none" if value in (None, "") else str(value)[:60]


def _turns(entries: Sequence[Sequence[Entry]]) -> tuple[TurnRow, ...]:
    """Returns the rows of the comparison by turn number."""
    first = {
        entry.candidate.source_hash: entry.candidate.turn + 1 for entry in reversed(entries[0])
    }
    first.pop(None, None)
    columns = [_by_turn(side_entries) for side_entries in entries]
    numbers = sorted(set[int]().union(*columns))
    rows: list[TurnRow] = []
    for number in numbers:
        cells = [_cell(columns[0], number, {})]
        # Only later sides name the turn of the first side with an equal program.
        cells += [_cell(column, number, first) for column in columns[1:]]
        rows.append(TurnRow(number=number, cells=tuple(cells)))
    return tuple(rows)


def _cell(column: Mapping[int, Entry], number: int, first: Mapping[str | None, int]) -> Cell | None:
    if (entry := column.get(number)) is None:
        return None
    candidate, _, verdict = entry
    parents = {other.candidate.id: turn for turn, other in column.items()}
    return Cell(
        candidate_id=candidate.id,
        action=candidate.action.value,
        origin=candidate.origin.value,
        parent=parents.get(candidate.parent_id or 0),
        verdict=candidate.state.value if verdict is None else _verdict_text(verdict),
        correct=verdict is not None and verdict.correct,
        rung=verdict.rung.value if verdict else "",
        speedup=verdict.speedup if verdict and verdict.correct else None,
        same_as=first.get(candidate.source_hash),
    )


def _verdict_text(verdict: Verdict) -> str:
    """Returns `correct`, the fault, or `incorrect` for a verdict without a fault."""
    if verdict.correct:
        return "correct"
    return verdict.fault.value if verdict.fault else "incorrect"

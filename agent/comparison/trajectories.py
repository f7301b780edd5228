"""Trajectories turn by turn against the first of them: where does each part from it, and what came of it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from kernelwright.agent.comparison.sides import Side, side_of
from kernelwright.policies.base import Value
from kernelwright.store.database import Store
from kernelwright.store.models import Candidate, Trajectory
from kernelwright.store.records import CandidateFilter, Entry, Order


class DivergenceKind(StrEnum):
    """The ways in which two trajectories diverge."""

    PROBLEM = "other_problem"
    PROMPT = "other_prompt"
    REPLY = "other_program"
    """The same prompt got another program."""
    WORDS = "other_words"
    """The same prompt got the same program (by its syntax tree) in another reply."""
    VERDICT = "other_verdict"
    """The same program got another verdict: another machine, other tools, or chance."""
    GOES_ON = "goes_on"
    """All turns are the same as far as the shorter one goes."""
    SAME = "same"


class Divergence(Value):
    """The point at which one trajectory diverges from the first."""

    kind: DivergenceKind
    turn: int | None = None
    """The turn, from 1; None where they never diverge, or are about different problems."""
    because: tuple[str, ...] = ()
    """The settings of that turn that differ, such as `seed 7 against 8`."""
    programs_part: int | None = None
    """The first turn whose programs differ."""


class Cell(Value):
    """One turn of one trajectory."""

    candidate_id: int
    action: str
    origin: str
    """policy, compiler or file."""
    parent: int | None
    """Number of the turn that it mends or refines."""
    verdict: str
    correct: bool
    rung: str
    speedup: float | None
    same_as: int | None
    """Turn of the first trajectory that holds the same program."""


class TurnRow(Value):
    """One turn of all trajectories that are compared."""

    number: int
    cells: tuple[Cell | None, ...]
    """One cell for each side, in their order; None where a side has no such turn."""


class ComparedTrajectories(Value):
    """Trajectories set side by side, turn by turn."""

    sides: tuple[Side, ...]
    partings: tuple[Divergence, ...]
    """The divergence of the second side, and of each one after it, from the first."""
    turns: tuple[TurnRow, ...]


def compare_trajectories(store: Store, ids: Sequence[int]) -> ComparedTrajectories:
    """Raises StoreError where there is none of that number."""
    rows = [store.trajectory(id) for id in ids]
    entries = [turns_of(store, id) for id in ids]
    names = {run.id: run.name for run in store.runs()}
    read = zip(rows, entries, strict=True)
    sides = tuple(
        side_of(row, own, names.get(row.run_id or 0, ""), _forked(store, row)) for row, own in read
    )
    others = zip(sides[1:], entries[1:], strict=True)
    return ComparedTrajectories(
        sides=sides,
        partings=tuple(find_divergence(sides[0], entries[0], side, own) for side, own in others),
        turns=_turns(entries),
    )


def _forked(store: Store, row: Trajectory) -> str:
    if row.forked_from_id is None:
        return ""
    origin = store.candidate(row.forked_from_id)
    return f"turn {origin.candidate.turn + 1} of {origin.trajectory.id}"


def turns_of(store: Store, trajectory_id: int) -> list[Entry]:
    """Returns all turns of a trajectory, the oldest first."""
    return store.candidates(
        CandidateFilter(trajectory_id=trajectory_id), order=Order.OLDEST, limit=None
    )


def find_divergence(
    first: Side, own: Sequence[Entry], other: Side, others: Sequence[Entry]
) -> Divergence:
    """Turns are aligned by their numbers, which a fork goes on with."""
    if first.problem_hash != other.problem_hash:
        return Divergence(kind=DivergenceKind.PROBLEM)
    columns = [{entry.candidate.turn + 1: entry for entry in side} for side in (own, others)]
    pairs = [
        (number, columns[0][number], columns[1][number])
        for number in sorted(columns[0].keys() & columns[1].keys())
    ]
    differ = (
        number
        for number, one, two in pairs
        if one.candidate.source_hash != two.candidate.source_hash
    )
    programs = next(differ, None)
    for number, one, two in pairs:
        if (kind := _difference(one, two)) is not None:
            because = _differing_settings(one.candidate, two.candidate)
            return Divergence(kind=kind, turn=number, because=because, programs_part=programs)
    shorter, longer = sorted(max(column, default=0) for column in columns)
    return (
        Divergence(kind=DivergenceKind.SAME)
        if shorter == longer
        else Divergence(kind=DivergenceKind.GOES_ON, turn=shorter + 1)
    )


def _difference(one: Entry, two: Entry) -> DivergenceKind | None:
    """Texts are kept once each, so equal numbers are equal texts."""
    a, b = one.candidate, two.candidate
    if a.prompt_id != b.prompt_id:
        return DivergenceKind.PROMPT
    if a.reply_id != b.reply_id:
        return (
            DivergenceKind.WORDS
            if a.source_hash == b.source_hash and a.source_hash
            else DivergenceKind.REPLY
        )
    return DivergenceKind.VERDICT if _verdict_key(one) != _verdict_key(two) else None


def _verdict_key(entry: Entry) -> tuple[Any, ...]:
    """Returns what is compared of a verdict: all but the speed, which is never twice the same."""
    verdict = entry.verdict
    return (
        ()
        if verdict is None
        else (verdict.correct, verdict.rung, verdict.fault, verdict.cheat, verdict.judged_on)
    )


def _differing_settings(one: Candidate, two: Candidate) -> tuple[str, ...]:
    """Returns the settings that differ between the two, in words; empty where none does."""
    a, b = _settings_of_row(one), _settings_of_row(two)
    return tuple(
        f"{name.replace('_', ' ')} {_value(a.get(name))} against {_value(b.get(name))}"
        for name in dict.fromkeys([*a, *b])
        if a.get(name) != b.get(name)
    )


def _settings_of_row(row: Candidate) -> dict[str, Any]:
    names = ("action", "policy", "policy_revision", "adapter", "adapter_revision", "prompt_version")
    return {**{name: getattr(row, name) for name in names}, **row.sampling}


def _value(value: Any) -> str:
    return "none" if value in (None, "") else str(value)[:60]


def _turns(entries: Sequence[Sequence[Entry]]) -> tuple[TurnRow, ...]:
    """Returns the turns by their number."""
    first = {
        entry.candidate.source_hash: entry.candidate.turn + 1 for entry in reversed(entries[0])
    }
    first.pop(None, None)
    columns = [{entry.candidate.turn + 1: entry for entry in own} for own in entries]
    numbers = sorted({number for column in columns for number in column})
    return tuple(
        TurnRow(number=number, cells=tuple(_cell(column, number, first if place else {}) for place,
        column in enumerate(columns)))
        for number in numbers
    )  # fmt: skip


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
        verdict=(
            candidate.state.value
            if verdict is None
            else "correct"
            if verdict.correct
            else verdict.fault.value
            if verdict.fault
            else "incorrect"
        ),
        correct=verdict is not None and verdict.correct,
        rung=verdict.rung.value if verdict else "",
        speedup=verdict.speedup if verdict and verdict.correct else None,
        same_as=first.get(candidate.source_hash),
    )

"""Mutation scores as Markdown and as JSON: by half, by kind of mutation and by family of kernel."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench.mutations.verdicts import Outcome, Record

HEAD = "| {} | refused | survived | score % | equivalent | no program | undecided |"
MAX_TEXT = 70
"""Characters of a changed text that are shown."""


def score(records: Iterable[Record]) -> float | None:
    """Percentage refused of the mutants that change an answer; None without any."""
    counts = Counter(record.outcome for record in records)
    decided = counts[Outcome.REFUSED] + counts[Outcome.SURVIVED]
    return 100.0 * counts[Outcome.REFUSED] / decided if decided else None


def as_json(records: Sequence[Record]) -> dict[str, Any]:
    """Scores by group, and the survivors."""
    groups = {name: _grouped(records, key) for name, key in GROUPINGS.items()}
    return {
        "mutants": len(records),
        **{
            f"by_{name}": {label: {"score": score(group), "outcomes": Counter(r.outcome for r in group)}
                           for label, group in grouped.items()}
            for name, grouped in groups.items()
        },
        "survivors": [record._asdict() for record in records if record.outcome == Outcome.SURVIVED],
    }  # fmt: skip


def as_markdown(records: Sequence[Record], command: str) -> str:
    """Tables of the scores, the survivors, and how they were measured."""
    lines = ["# Mutation score of the judge's draws, without a GPU", ""]
    for name, key in GROUPINGS.items():
        lines += [HEAD.format(name), "|---|---|---|---|---|---|---|"]
        lines += [_row(label, group) for label, group in sorted(_grouped(records, key).items())]
        lines.append("")
    survivors = [record for record in records if record.outcome == Outcome.SURVIVED]
    lines += [f"Survivors that change an answer on a legal input: {len(survivors)}.", ""]
    lines += [_survivor(record) for record in survivors]
    return "\n".join([*lines, "", command, ""])


GROUPINGS: dict[str, Callable[[Record], str]] = {
    "half": lambda record: record.half,
    "kind": lambda record: f"{record.kind} ({record.half})",
    "family": lambda record: record.family,
}


def _grouped(records: Sequence[Record], key: Callable[[Record], str]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return groups


def _row(label: str, records: Sequence[Record]) -> str:
    counts, percentage = Counter(record.outcome for record in records), score(records)
    shown = "" if percentage is None else f"{percentage:.1f}"
    return (
        f"| {label} | {counts[Outcome.REFUSED]} | {counts[Outcome.SURVIVED]} | {shown} | "
        f"{counts[Outcome.EQUIVALENT]} | {counts[Outcome.NO_PROGRAM]} | {counts[Outcome.UNDECIDED]} |"
    )


def _survivor(record: Record) -> str:
    before, after = (" ".join(text.split())[:MAX_TEXT] for text in (record.before, record.after))
    return f"- {record.kernel}, line {record.line}, {record.kind}: `{before}` to `{after}`; seen by {record.message}"

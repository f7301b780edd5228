"""A trajectory as a value: every turn with its prompt, diff, verdict and speed."""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence

from kernelwright.policies.authors import author_of
from kernelwright.policies.base import Value
from kernelwright.store.database import Store
from kernelwright.store.models import Trajectory
from kernelwright.store.records import Turn
from kernelwright.tools.report import Failure, Report, Roofline, clean_text

MAX_REPORT_CHARACTERS = 200_000
"""Maximum number of characters of a displayed text."""
VERDICT_COLUMNS = 130
"""Width of a full verdict, in columns."""


class TurnReport(Value):
    """A turn of a trajectory's report."""

    number: int
    """Number of the turn, from 1."""
    candidate_id: int
    action: str
    parent: int | None
    """Number of the turn that this turn repairs or refines."""
    correct: bool
    verdict: str
    speedup: float | None
    milliseconds: float | None
    facts: tuple[tuple[str, str], ...]
    failure: str
    full: str
    """The verdict as `agent check` prints it; empty if there is none."""
    diff: tuple[tuple[str, str], ...]
    """Diff against the parent: kind (added, removed, quiet or empty) and line."""
    source: str
    messages: tuple[tuple[str, str], ...]
    reply: str


class LineageNode(Value):
    """A line of the lineage's tree."""

    text: str
    turn: int | None
    """Number of the turn; None if it belongs to the trajectory from which this trajectory was
    forked.
    """
    correct: bool


class TrajectoryReport(Value):
    """The report of a trajectory."""

    trajectory_id: int
    problem: str
    facts: tuple[tuple[str, str], ...]
    reference: str
    lineage: tuple[LineageNode, ...]
    turns: tuple[TurnReport, ...]
    roofline: Roofline | None
    eager_milliseconds: float | None


def report_trajectory(store: Store, id: int) -> TrajectoryReport:
    """Reports on a trajectory. Raises StoreError if there is no trajectory of this number."""
    row, turns = store.trajectory(id), store.turns(id)
    numbers = {turn.candidate_id: turn.turn + 1 for turn in turns}
    sources = {turn.candidate_id: turn.source or "" for turn in turns}
    for parent in {turn.parent_id for turn in turns if turn.parent_id is not None} - sources.keys():
        # A parent in the trajectory from which this trajectory was forked.
        sources[parent] = store.turn(parent).source or ""
    profiles = [turn.report.profile for turn in turns if turn.report and turn.report.profile]
    eager = [profile.eager.median for profile in profiles if profile.eager]
    return TrajectoryReport(
        trajectory_id=id,
        problem=row.problem,
        facts=trajectory_facts(row, numbers),
        reference=_shown(store.problem(id).source),
        lineage=_lineage(store, id, numbers),
        turns=tuple(_turn(turn, numbers, sources) for turn in turns),
        roofline=next(
            (profile.roofline for profile in reversed(profiles) if profile.roofline), None
        ),
        eager_milliseconds=eager[-1] if eager else None,
    )


def _lineage(store: Store, id: int, numbers: Mapping[int, int]) -> tuple[LineageNode, ...]:
    from kernelwright.agent.reporting.viewed_trajectory import (
        read_viewed_trajectory,
        tree_lines,
        verdict_words,
    )

    viewed = read_viewed_trajectory(store, id)
    return tuple(
        LineageNode(
            text=line.plain[1:],
            turn=numbers.get(candidate),
            correct=verdict_words(viewed.graph.nodes[candidate]["entry"])[1],
        )
        for candidate, line in tree_lines(viewed)
    )


def trajectory_facts(row: Trajectory, numbers: Mapping[int, int]) -> tuple[tuple[str, str], ...]:
    """Returns the known facts of a trajectory as labels with values; `numbers`: turns by
    candidate.
    """
    best = numbers.get(row.best_id or 0)
    return (
        ("trajectory", str(row.id)),
        ("policy", row.policy),
        *(
            [("forked", f"after candidate {row.forked_from_id}")]
            if row.forked_from_id is not None
            else []
        ),
        ("goal", row.goal or "-"),
        ("begun", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(row.created))),
        (
            "stopped",
            (row.stop_reason or "not yet").replace("_", " ")
            + (f": {row.message}" if row.message else ""),
        ),
        ("best", f"turn {best}" if best else "none is correct"),
        ("took", _took(row.spent or {}) or "-"),
    )


def _took(spent: Mapping[str, object]) -> str:
    """Formats the known costs: `5 turns, 7,580 tokens, $0.0125, 31.2 s, 4.1 s of GPU`."""
    forms = {
        "turns": "{:,} turns",
        "tokens": "{:,} tokens",
        "dollars": "${:.4f}",
        "seconds": "{:.1f} s",
    }
    forms["gpu_seconds"] = "{:.1f} s of GPU"
    amounts = [(form, spent.get(name)) for name, form in forms.items()]
    text = ", ".join(
        form.format(value) for form, value in amounts if isinstance(value, int | float) and value
    )
    return text.replace("1 turns,", "1 turn,", 1) if text.startswith("1 turns,") else text


def _turn(turn: Turn, numbers: Mapping[int, int], sources: Mapping[int, str]) -> TurnReport:
    report, source = turn.report, turn.source or ""
    profile = report.profile if report else None
    parent = sources.get(turn.parent_id or 0)
    return TurnReport(
        number=turn.turn + 1,
        candidate_id=turn.candidate_id,
        action=turn.action.value,
        parent=numbers.get(turn.parent_id or 0),
        correct=report is not None and report.correct,
        verdict=_verdict(report),
        speedup=report.speedup if report else None,
        milliseconds=profile.candidate.median
        if profile and profile.candidate and report and report.correct
        else None,
        facts=_turn_facts(turn),
        failure=_failure(report.failure) if report and report.failure else "",
        full=_full(report) if report else "",
        diff=tuple(diff_lines(parent, source)) if parent and source else (),
        source=_shown(source),
        messages=tuple((message.role.value, _shown(message.content)) for message in turn.messages),
        reply=_shown(turn.completion.text) if turn.completion else "(not answered yet)",
    )


def _verdict(report: Report | None) -> str:
    if report is None:
        return "not judged"
    if not report.correct:
        return report.failure.fault.value.replace("_", " ") if report.failure else "not correct"
    if report.speedup is not None:
        return f"correct, {report.speedup:.3g}x eager PyTorch"
    return "correct on a CPU, interpreted" if report.judged_on == "cpu" else "correct"


def _turn_facts(turn: Turn) -> tuple[tuple[str, str], ...]:
    report, completion = turn.report, turn.completion
    facts = [("candidate", str(turn.candidate_id))]
    if report is not None:
        facts.append(("rung reached", report.rung.value))
        facts.append(("judged on", report.judged_on or "never run"))
        facts += [("shape", verdict.line) for verdict in report.shapes]
        kernels = report.compile.kernels if report.compile else ()
        facts += [
            (
                "kernel",
                f"{k.name}: {k.registers} registers, {k.spills} spills, {k.shared} bytes shared, {k.warps} warps",
            )
            for k in kernels[:8]
        ]
        if report.profile and report.profile.speed_of_light is not None:
            facts.append(("of the speed of light", f"{report.profile.speed_of_light:.1%}"))
    if completion is not None:
        usage = completion.usage
        facts.append(("written by", author_of(completion)))
        facts.append(
            (
                "policy",
                f"{usage.prompt_tokens} + {usage.completion_tokens} tokens, {completion.latency:.2f} s",
            )
        )
    return tuple((label, clean_text(value, 400)) for label, value in facts)


def _failure(failure: Failure) -> str:
    parts = [f"{failure.fault.value}: {failure.message}", failure.trace]
    if failure.mismatch is not None:
        parts.insert(1, failure.mismatch.hint)
    return _shown("\n".join(part for part in parts if part))


def _full(report: Report) -> str:
    from io import StringIO

    from rich.console import Console

    from kernelwright.agent.reporting.verdicts.verdict import report_view

    out = StringIO()
    Console(file=out, width=VERDICT_COLUMNS, color_system=None, legacy_windows=False).print(
        report_view(report)
    )
    return _shown("\n".join(line.rstrip() for line in out.getvalue().splitlines()))


def diff_lines(before: str, after: str) -> list[tuple[str, str]]:
    """Returns each line of a diff with its kind: added, removed, quiet (a position) or empty."""
    kinds = {"+": "added", "-": "removed", "@": "quiet"}
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    lines = list(diff)[2:]  # without the two lines of file names
    return [(kinds.get(line[:1], ""), _shown(line)) for line in lines]


def _shown(text: str) -> str:
    return clean_text(text, MAX_REPORT_CHARACTERS)


def speeds(turns: Sequence[TurnReport]) -> list[tuple[int, float]]:
    """Returns the number and the speedup of each timed correct turn."""
    return [
        (turn.number, turn.speedup) for turn in turns if turn.correct and turn.speedup is not None
    ]


def trajectory_markdown(report: TrajectoryReport) -> str:
    """Writes the turns as Markdown: verdict, changes, failure. The page and the JSON also have
    the prompts.
    """
    lines = [
        f"# {report.problem}",
        "",
        *(f"- {label}: {value}" for label, value in report.facts),
        "",
    ]
    for turn in report.turns:
        parent = f" of turn {turn.parent}" if turn.parent else ""
        lines += [f"## Turn {turn.number}: {turn.action}{parent}, {turn.verdict}", ""]
        lines += [*(f"- {label}: {value}" for label, value in turn.facts), ""]
        changed = "\n".join(line for _, line in turn.diff)
        for kind, text in (
            ("text", turn.failure),
            ("diff", changed),
            ("python", "" if turn.diff else turn.source),
        ):
            if text:
                lines += [*_fenced(kind, text), ""]
    return "\n".join(lines)


def _fenced(kind: str, text: str) -> list[str]:
    """Puts a text between fences longer than any fence in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return [f"{fence}{kind}", text.rstrip(), fence]

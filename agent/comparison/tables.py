"""Renders a comparison as text tables, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelwright.agent.comparison.runs import ComparedRuns, ProblemRow
from kernelwright.agent.comparison.sides import Metrics, Side
from kernelwright.agent.comparison.trajectories import (
    Cell,
    ComparedTrajectories,
    Divergence,
    DivergenceKind,
)
from kernelwright.agent.reporting.texts import (
    AGAINST_HEAD,
    escape_markdown_cell,
    markdown_table,
    paired_cells,
)
from kernelwright.policies.base import Origin, Value
from kernelwright.tools.report import Rung

DIVERGENCE_SENTENCES = {
    DivergenceKind.PROBLEM: "they are about different problems",
    DivergenceKind.PROMPT: "at turn {turn}: another prompt",
    DivergenceKind.REPLY: "at turn {turn}: the same prompt, another program",
    DivergenceKind.WORDS: "at turn {turn}: the same prompt, the same program in other words",
    DivergenceKind.VERDICT: "at turn {turn}: the same program, another verdict",
    DivergenceKind.GOES_ON: "nowhere, until one of them goes on at turn {turn}",
    DivergenceKind.SAME: "nowhere: turn for turn the same",
}


class ComparisonTable(Value):
    """Text table with title, head and rows."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def trajectory_tables(comparison: ComparedTrajectories) -> list[ComparisonTable]:
    """Renders a comparison of trajectories as tables."""
    sides = comparison.sides
    names = tuple(str(side.trajectory_id) for side in sides)
    about = (*_about(sides), *_metrics([side.metrics for side in sides]))
    partings = zip(names[1:], map(describe_divergence, comparison.partings), strict=True)
    turns: list[tuple[str, ...]] = []
    for row in comparison.turns:
        cells = [_cell(cell, index, row.number) for index, cell in enumerate(row.cells)]
        turns.append((str(row.number), *cells))
    parting_head = ("trajectory", f"parts from {names[0]}")
    return [
        ComparisonTable(title="trajectories", head=("", *names), rows=about),
        ComparisonTable(title="where they part", head=parting_head, rows=tuple(partings)),
        ComparisonTable(title="turns", head=("turn", *names), rows=tuple(turns)),
    ]


def describe_divergence(part: Divergence) -> str:
    """Describes the turn and cause of a trajectory's divergence from the first."""
    sentence = DIVERGENCE_SENTENCES[part.kind].format(turn=part.turn)
    if part.because:
        sentence += f" ({', '.join(part.because)})"
    if part.programs_part is not None and part.programs_part != part.turn:
        sentence += f"; their programs part at turn {part.programs_part}"
    return sentence


def _about(sides: Sequence[Side]) -> tuple[tuple[str, ...], ...]:
    best = ("-" if side.best_turn is None else f"turn {side.best_turn}" for side in sides)
    return (
        ("problem", *(side.problem for side in sides)),
        ("policy", *(side.policy for side in sides)),
        ("run", *(side.run or "-" for side in sides)),
        *(
            [("forked after", *(side.forked or "-" for side in sides))]
            if any(side.forked for side in sides)
            else []
        ),
        ("stopped", *(side.stopped.replace("_", " ") for side in sides)),
        ("best", *best),
    )


def _metrics(sides: Sequence[Metrics]) -> tuple[tuple[str, ...], ...]:
    """Returns a row per metric; cells after the first also show the difference to the first."""
    rows = [
        _numbers("turns", sides, lambda m: m.cost.turns),
        _numbers("turns to the first correct", sides, lambda m: m.first_correct),
        _numbers("tokens", sides, lambda m: m.cost.tokens),
        _numbers("seconds", sides, lambda m: m.seconds, ".1f"),
        _numbers("of the policy", sides, lambda m: m.cost.policy_seconds, ".1f"),
        _numbers("of the tools", sides, lambda m: m.cost.tool_seconds, ".1f"),
        _numbers("of the GPU", sides, lambda m: m.cost.gpu_seconds, ".1f"),
        _numbers("dollars", sides, lambda m: m.cost.dollars, ".4f"),
        _speedups(sides),
        ("judged on", *(", ".join(side.judged_on) or "-" for side in sides)),
        *([("environment", *map(_environments, sides))] if _differ_in_environment(sides) else []),
        ("rungs reached", *(_rungs(side) for side in sides)),
        ("faults", *(_counted(side.faults) for side in sides)),
    ]
    return tuple(rows)


def _numbers(
    name: str,
    sides: Sequence[Metrics],
    of: Callable[[Metrics], float | None],
    form: str = ",.0f",
    against: bool = True,
) -> tuple[str, ...]:
    """Returns a row of numbers; with `against`, later cells also show the difference to the first."""
    values = [of(side) for side in sides]
    first = values[0]
    cells = ["-" if first is None else format(first, form)]
    for value in values[1:]:
        if value is None:
            cells.append("-")
        elif first is None or not against:
            cells.append(format(value, form))
        else:
            cells.append(f"{format(value, form)} ({format(value - first, f'+{form}')})")
    return (name, *cells)


def _speedups(sides: Sequence[Metrics]) -> tuple[str, ...]:
    """Returns the row of best speedups; sides judged only on a CPU are marked as not timed."""
    row = _numbers(
        "best speedup",
        sides,
        lambda m: m.best_speedup,
        ".3g",
        against=not _differ_in_environment(sides),
    )
    name, *cells = row
    for index, side in enumerate(sides):
        if side.judged_on == ("cpu",):
            cells[index] = "not timed on a CPU"
    return (name, *cells)


def _differ_in_environment(sides: Sequence[Metrics]) -> bool:
    """Returns whether speeds were measured in several environments and are therefore not
    comparable.
    """
    return len({name for side in sides for name in side.environments}) > 1


def _environments(metrics: Metrics) -> str:
    return ", ".join(name[:8] or "unknown" for name in metrics.environments) or "-"


def _rungs(metrics: Metrics) -> str:
    """Returns the rungs, the highest first."""
    return _counted(
        {
            rung.value: metrics.rungs[rung.value]
            for rung in reversed(Rung)
            if rung.value in metrics.rungs
        }
    )


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items()) or "-"


ORIGIN_SUFFIXES = {
    Origin.COMPILER.value: " by the compiler",
    Origin.TRANSFORMATION.value: " by a transformation",
    Origin.FILE.value: " from a file",
}


def _cell(cell: Cell | None, side_index: int, number: int) -> str:
    if cell is None:
        return ""
    of = f" of {cell.parent}" if cell.parent else ""
    speed = f" {cell.speedup:.3g}x" if cell.speedup is not None else ""
    rung = f" at {cell.rung}" if not cell.correct and cell.rung else ""
    same = ""
    if side_index and cell.same_as is not None:
        same = (
            ", same program" if cell.same_as == number else f", the program of turn {cell.same_as}"
        )
    by = ORIGIN_SUFFIXES.get(cell.origin, "")
    return f"{cell.action}{of}{by}: {cell.verdict.replace('_', ' ')}{speed}{rung}{same}"


def run_tables(comparison: ComparedRuns) -> list[ComparisonTable]:
    """Renders a comparison of batch runs as tables."""
    names = tuple(side.run for side in comparison.sides)
    metrics = [side.metrics for side in comparison.sides]
    about: tuple[tuple[str, ...], ...] = (
        ("policies", *(", ".join(side.policies) for side in comparison.sides)),
        ("problems", *(str(side.problems) for side in comparison.sides)),
        _numbers("trajectories", metrics, lambda m: m.trajectories),
        _numbers("correct", metrics, lambda m: m.correct),
    )
    partings: list[tuple[str, ...]] = []
    tests: list[ComparisonTable] = []
    for name, kinds, test in zip(names[1:], comparison.partings, comparison.tests, strict=True):
        partings.append((name, _counted(kinds)))
        title = f"{names[0]} against {name}"
        rows = tuple(map(paired_cells, test))
        tests.append(ComparisonTable(title=title, head=AGAINST_HEAD, rows=rows))
    return [
        ComparisonTable(title="runs", head=("", *names), rows=(*about, *_metrics(metrics))),
        ComparisonTable(
            title="where their samples part",
            head=("run", f"from {names[0]}, pairs of samples"),
            rows=tuple(partings),
        ),
        *tests,
        ComparisonTable(
            title="problems",
            head=("problem", *names, f"{names[1]} parts from {names[0]}", "at turn"),
            rows=tuple(map(_problem, comparison.problems)),
        ),
    ]


def _problem(row: ProblemRow) -> tuple[str, ...]:
    cells = ("-" if side is None else _summary(side) for side in row.sides)
    return (row.problem, *cells, row.parting or "-", "-" if row.turn is None else str(row.turn))


def _summary(metrics: Metrics) -> str:
    speed = f", {metrics.best_speedup:.3g}x" if metrics.best_speedup is not None else ""
    failed = f", {metrics.highest}" if not metrics.correct and metrics.highest else ""
    return f"{metrics.correct} of {metrics.trajectories} correct{speed}{failed}"


def tables_markdown(title: str, tables: Sequence[ComparisonTable]) -> str:
    """Renders tables as a Markdown page."""
    lines = [f"# {escape_markdown_cell(title)}", ""]
    for table in tables:
        lines += [
            f"## {escape_markdown_cell(table.title)}",
            "",
            *markdown_table(table.head, table.rows),
            "",
        ]
    return "\n".join(lines)

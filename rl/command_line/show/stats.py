"""Renders `rl stats`, and the part of `rl train` about its log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group
    from rich.table import Table

    from kernelwright.rl.log.refusals import RefusalCount
    from kernelwright.rl.log.statistics import LogStats


def stats_view(stats: LogStats) -> Group:
    """Renders the statistics of a log."""
    from rich.console import Group

    from kernelwright.agent.reporting.words import number_of

    head = (
        f"{stats.where}: {number_of(stats.turns, 'turn')} ({stats.judged:,} judged, {stats.on_gpu:,} on a GPU) of "
        f"{stats.trajectories:,} {'trajectory' if stats.trajectories == 1 else 'trajectories'} "
        f"over {number_of(stats.problems, 'problem')}; {stats.distinct:.0%} of the programs are distinct\n"
        f"exact GRPO: {number_of(stats.trainable, 'turn')} with a gradient; {number_of(stats.groups, 'group')}, "
        f"{stats.zero_variance:,} of them without variance; "
        f"sizes {', '.join(f'{size} x{count}' for size, count in stats.sizes.items()) or 'none'}"
    )
    parts: list[object] = [head, _depths(stats), _faults(stats), _policies(stats)]
    if stats.rewards is not None:
        parts.append(_rewards(stats))
    if stats.refused:
        parts.append(refusal_table(stats.refused))
    return Group(*parts)  # type: ignore[arg-type]


def refusal_table(refused: Sequence[RefusalCount]) -> Table:
    """Renders the unused turns with reasons and advice."""
    table = _table("Not used", "turns", "why", "what to do", "such as")
    for row in refused:
        table.add_row(f"{row.turns:,}", row.description, row.remedy, f"candidate {row.example}")
    return table


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _depths(stats: LogStats) -> Table:
    table = _table(
        "By depth (0: drafts, 1: first repairs or refinements ...)",
        "depth",
        "turns",
        "compiled",
        "correct",
        "reward",
        "+-",
        "tokens",
    )
    for row in stats.depths:
        table.add_row(
            str(row.depth), f"{row.turns:,}", f"{row.compiled:.1%}", f"{row.correct:.1%}", f"{row.reward:.3f}",
            f"{row.deviation:.3f}", f"{row.tokens:.0f}",
        )  # fmt: skip
    return table


def _faults(stats: LogStats) -> Table:
    table = _table("Verdicts", "fault", "turns", "share")
    for name, count in stats.faults.items():
        table.add_row(name, f"{count:,}", f"{count / max(stats.judged, 1):.1%}")
    return table


def _policies(stats: LogStats) -> Table:
    table = _table(
        "Policies, the oldest first",
        "policy",
        "revision",
        "turns",
        "exact",
        "correct",
        "from",
        "to",
    )
    for row in stats.policies:
        table.add_row(
            row.policy, row.revision or "not known", f"{row.turns:,}", f"{row.exact:,}", f"{row.correct:.1%}",
            _when(row.first), _when(row.last),
        )  # fmt: skip
    return table


def _rewards(stats: LogStats) -> Table:
    rewards = stats.rewards
    assert rewards is not None
    title = (
        f"Reward {rewards.formula}: mean {rewards.mean:.3f} +- {rewards.deviation:.3f}; variance "
        f"{rewards.within:.4f} inside groups, "
        f"{rewards.between:.4f} between them"
    )
    table = _table(title, "part", "mean", "+-", "not 0")
    for part in rewards.parts:
        table.add_row(part.part, f"{part.mean:.4f}", f"{part.deviation:.4f}", f"{part.nonzero:.1%}")
    return table


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))

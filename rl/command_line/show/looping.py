"""Renders the cycles of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Group

    from kernelwright.rl.training.online.loop_folder import Cycle


def cycles_view(cycles: Sequence[Cycle], output: Path) -> Group:
    """Renders the cycles of a loop: each held-out split before and after, and the promotion."""
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        "cycle",
        "split",
        "before",
        "after",
        "difference (95 %)",
        "",
        title="Held-out pass@1",
        title_justify="left",
    )
    for cycle in cycles:
        for index, comparison in enumerate(cycle.compared):
            outcome = (
                escape(("promoted: " if cycle.promoted else "kept back: ") + cycle.why)
                if index == 0
                else ""
            )
            spread = (
                f"{comparison.difference:+.1%} ({comparison.low:+.1%} to {comparison.high:+.1%})"
            )
            table.add_row(
                str(cycle.cycle + 1) if index == 0 else "",
                comparison.split,
                f"{comparison.before:.1%}",
                f"{comparison.after:.1%}",
                spread,
                outcome,
            )
    promoted = any(cycle.promoted for cycle in cycles)
    location = (
        f"the best policy is in {output / 'policy'}"
        if promoted
        else "no candidate was better: the policy stays as it was"
    )
    return Group(
        table, location, f"report   {output / 'report.html'}, picture {output / 'loop.png'}"
    )

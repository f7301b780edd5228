"""Renders the cycles of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Group

    from kernelwright.rl.training.online.loop_folder import Cycle


def cycles_view(cycles: Sequence[Cycle], output: Path) -> Group:
    """Shows the cycles of a loop: each held-out split before and after, and whether it was promoted."""
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
        for place, one in enumerate(cycle.compared):
            said = (
                escape(("promoted: " if cycle.promoted else "kept back: ") + cycle.why)
                if place == 0
                else ""
            )
            spread = f"{one.difference:+.1%} ({one.low:+.1%} to {one.high:+.1%})"
            table.add_row(
                str(cycle.cycle + 1) if place == 0 else "",
                one.split,
                f"{one.before:.1%}",
                f"{one.after:.1%}",
                spread,
                said,
            )
    promoted = any(cycle.promoted for cycle in cycles)
    where = (
        f"the best policy is in {output / 'policy'}"
        if promoted
        else "no candidate was better: the policy stays as it was"
    )
    return Group(table, where, f"report   {output / 'report.html'}, picture {output / 'loop.png'}")

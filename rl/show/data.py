"""Corpora on a terminal: values in, rich renderables out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rl.data.synth.generating import State


def synth_view(state: State) -> RenderableType:
    """What was generated, how fast, and what was refused and why."""
    from rich.table import Table

    table = Table(show_header=False, box=None)
    refused = sum(state.rejected.values())
    table.add_row("drafts", f"{state.drafts:,}")
    table.add_row("repairs", f"{state.repairs:,}")
    table.add_row("families", ", ".join(f"{name} {count:,}" for name, count in state.families.items()))
    table.add_row("distinct dataflow graphs", f"{state.graphs:,}")
    table.add_row("pairs a second", f"{state.rate:.2f} with {state.workers} workers, {state.seconds:,.0f} s")
    table.add_row("refused", f"{refused:,} of {state.tried:,} ({refused / max(state.tried, 1):.1%})")
    for reason, count in list(state.rejected.items())[:12]:
        table.add_row("", f"{count:,} {reason}")
    return table

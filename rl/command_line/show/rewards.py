"""Renders rewards and their parts as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group, RenderableType
    from rich.table import Table

    from kernelwright.agent.rewards.formula import Formula
    from kernelwright.rl.credit.explaining import ExplainedReward
    from kernelwright.rl.training.safety.suspects import Suspect


def explained_view(explained: ExplainedReward) -> Group:
    """Renders the parts of a candidate's reward."""
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    table = Table("part", "earns", "why")
    for part in explained.parts:
        table.add_row(part.part, f"{part.value:+.4f}", escape(part.why))
    table.add_row("sum", f"{explained.total:+.4f}", "", style="bold")
    notes = [
        f"return {explained.value:+.4f}: this and, at gamma {explained.gamma:g} a step, the later turns of its lineage",
    ]
    if not explained.kept:
        notes.append(
            "the formula rejects this sample: too little of the GPU time is in its own kernels"
        )
    if not explained.earns:
        notes.append(
            "the problem is passed by a degenerate answer: none of its candidates is a sample"
        )
    head = (
        f"candidate {explained.candidate_id}: {explained.problem}, depth {explained.depth}, by "
        f"{explained.policy or 'nobody known'}; "
        f"{explained.formula}"
    )
    return Group(escape(head), escape(explained.verdict), table, *notes)


def presets_view(presets: Sequence[Formula]) -> RenderableType:
    """Renders the weights of the preset formulas."""
    from rich.text import Text

    from kernelwright.agent.reporting.words import AdaptiveTable

    weights = ("form", "compile", "checks", "correct", "speed", "share", "length", "cheat")
    rows = [
        [
            Text(preset.name),
            *(Text(f"{getattr(preset, weight):g}") for weight in weights),
            Text(preset.why),
        ]
        for preset in presets
    ]
    return AdaptiveTable(("name", *weights, "why"), rows, numeric=weights, wrapped=("why",))


def suspects_view(suspects: Sequence[Suspect]) -> Table | str:
    """Renders the candidates for a person to inspect."""
    from rich.markup import escape
    from rich.table import Table

    if not suspects:
        return "nothing suspicious"
    table = Table(
        "candidate",
        "problem",
        "why",
        title=f"{len(suspects)} candidates for a person to look at",
        title_justify="left",
    )
    for suspect in suspects:
        table.add_row(str(suspect.candidate_id), escape(suspect.problem), escape(suspect.why))
    return table

"""Shows an evaluation on the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.rl.evaluating.comparing import EvaluationComparison
from kernelwright.rl.evaluating.page import changes_text, difference_text, percent, shared_text
from kernelwright.rl.evaluating.running import EvaluationResult


def evaluation_view(result: EvaluationResult) -> RenderableType:
    """Shows the figures of an evaluation."""
    evaluation = result.evaluation
    head = (
        f"{evaluation.policy} on {evaluation.suite}: {evaluation.problems} problems, "
        f"{evaluation.samples} samples, {evaluation.turns} turns"
    )
    ks = [k for k in evaluation.within[0].at if k > 1]
    turns = Table("turns", "compiled", "solved (pass@1)", *(f"pass@{k}" for k in ks), box=None)
    for w in evaluation.within:
        turns.add_row(
            str(w.turns), percent(w.compiled), percent(w.solved), *(percent(w.at[k]) for k in ks)
        )
    families = Table(
        "family", "problems", "drafts right", f"within {evaluation.turns}", "ever solved", box=None
    )
    for name, family in evaluation.families.items():
        families.add_row(
            name,
            str(family.problems),
            percent(family.drafted),
            percent(family.solved),
            str(family.any_solved),
        )
    parts: list[RenderableType] = [Text(head), turns, Text(""), families]
    if result.comparison is not None:
        parts += [Text(""), comparison_view(result.comparison)]
    return Group(*parts, Text(f"kept in {result.folder}"))


MAX_CHANGES_SHOWN = 8
"""Number of won or lost problems named on the terminal."""


def comparison_view(compared: EvaluationComparison) -> RenderableType:
    """Shows a comparison with an earlier evaluation."""
    table = Table("turns", "figure", "before", "after", "difference (95 %)", box=None)
    for figure in compared.passes:
        before, after = f"{figure.before:.1%}", f"{figure.after:.1%}"
        table.add_row(str(figure.turns), f"pass@{figure.k}", before, after, difference_text(figure))
    lines = [
        f"won   {len(compared.won)}: {changes_text(compared.won, MAX_CHANGES_SHOWN)}",
        f"lost  {len(compared.lost)}: {changes_text(compared.lost, MAX_CHANGES_SHOWN)}",
        *(f"note  {remark}" for remark in compared.remarks),
    ]
    head = f"against {compared.before_policy} in {compared.against}. {shared_text(compared)}"
    return Group(Text(head), table, Text("\n".join(lines)))

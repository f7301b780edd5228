"""An evaluation on the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.rl.evaluating.page import percent
from kernelwright.rl.evaluating.running import EvaluationResult


def evaluation_view(found: EvaluationResult) -> RenderableType:
    """Shows the figures of an evaluation."""
    own = found.evaluation
    head = f"{own.policy} on {own.suite}: {own.problems} problems, {own.samples} samples, {own.turns} turns"
    ks = [k for k in own.within[0].at if k > 1]
    turns = Table("turns", "compiled", "solved (pass@1)", *(f"pass@{k}" for k in ks), box=None)
    for w in own.within:
        turns.add_row(str(w.turns), percent(w.compiled), percent(w.solved), *(percent(w.at[k]) for k in ks))
    families = Table("family", "problems", "drafts right", f"within {own.turns}", "ever solved", box=None)
    for name, family in own.families.items():
        families.add_row(
            name, str(family.problems), percent(family.drafted), percent(family.solved), str(family.any_solved)
        )
    return Group(Text(head), turns, Text(""), families, Text(f"kept in {found.folder}"))

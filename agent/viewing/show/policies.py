"""Renders `agent policies`: each model's card, and the forms of a policy's name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.text import Text

from kernelwright.agent.reporting.words import QUIET, facts_table
from kernelwright.policies.opening.open_policy import POLICY_FORMS
from kernelwright.policies.policy_card import PolicyCard


def policies_view(policies: Sequence[tuple[str, str, PolicyCard]]) -> RenderableType:
    """Renders policies: for each the name for --policy, the weights' revision and the card."""
    parts: list[RenderableType] = []
    for name, revision, card in policies:
        parts += [Text(name, style="bold"), facts_table(_rows(revision, card)), Text()]
    return Group(*parts, Text(f"--policy takes: {', '.join(POLICY_FORMS)}", style=QUIET))


def _rows(revision: str, card: PolicyCard) -> list[tuple[str, object]]:
    trained = ", ".join(
        filter(
            None,
            [
                card.method,
                f"{card.steps:,} steps" if card.steps is not None else "",
                f"checkpoint of step {card.step:,}"
                if card.step is not None and card.steps is None
                else "",
                f"reward {card.formula}" if card.formula else "",
                f"on {', '.join(card.trained_on)}" if card.trained_on else "",
            ],
        )
    )
    when = (
        datetime.fromtimestamp(card.created, UTC).strftime("%Y-%m-%d %H:%M UTC")
        if card.created
        else ""
    )
    return [
        ("revision", revision),
        ("parameters", "" if card.parameters is None else f"{card.parameters:,}"),
        ("base", card.base),
        ("rows", ", ".join(f"{number:,} {name}" for name, number in card.rows.items())),
        ("loss", "" if card.loss is None else f"{card.loss:.4f} nats a token"),
        ("training", trained),
        ("mean of", ", ".join(averaged.revision for averaged in card.averaged)),
        ("seed", "" if card.seed is None else card.seed),
        ("created", when),
        ("lineage", " -> ".join(card.lineage[-4:])),
        ("asked", f"in the {card.prompt_form} form"),
        ("note", card.note),
    ]

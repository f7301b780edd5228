"""How a run ended, and what a run would do, for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from agent.planning import DryRun
from agent.show.failure import failure_view
from agent.show.words import BAD, GOOD, LABEL, QUIET, WARN, data, facts
from agent.solving import Solved
from agent.stopping import PAUSES


def solved_view(solved: Solved) -> RenderableType:
    """The verdict, where the kernel is, why it stopped, what it took."""
    verdict = ("correct", GOOD) if solved.correct else ("no correct kernel", BAD)
    parts: list[RenderableType] = [Text.assemble(verdict, "  ", (solved.problem, "bold"), ", ", data(solved.verified))]
    if not solved.correct and solved.report and solved.report.failure:
        parts.append(failure_view(solved.report.failure))
    parts.append(facts(_rows(solved)))
    if solved.note:
        parts.append(Text(f"note: {solved.note}", style=WARN))
    return Group(*parts)


def _rows(solved: Solved) -> list[tuple[str, object]]:
    why = solved.stop_reason.replace("_", " ")
    paused = "; the same command goes on from here" if solved.stop_reason in PAUSES else ""
    return [
        ("kernel", solved.output or ""),
        ("stopped", Text.assemble(why, data(f": {solved.message}" if solved.message else ""), paused)),
        ("goal", f"{solved.goal} ({'reached' if solved.goal_reached else 'not reached'})"),
        ("took", _took(solved)),
        ("kept", f"trajectory {solved.trajectory_id} in {solved.database}"),
    ]


def _took(solved: Solved) -> str:
    spent = solved.spent
    parts = [
        f"{spent.turns} turn{'' if spent.turns == 1 else 's'}",
        f"{spent.tokens:,} tokens",
        f"{spent.seconds:.1f} s",
    ]
    if spent.dollars is None:
        parts.append("dollars unknown")
    elif spent.dollars:
        parts.append(f"${spent.dollars:.4f}")
    if spent.gpu_seconds:
        parts.append(f"{spent.gpu_seconds:.1f} s of GPU")
    return ", ".join(parts)


def dry_run_view(plan: DryRun) -> RenderableType:
    """The prompt, message by message, then the plan and the estimate."""
    parts: list[RenderableType] = []
    for message in plan.messages:
        parts += [Text(f"--- {message.role}", style=LABEL), data(message.content, limit=10**6)]
    most = "unbounded" if plan.most_tokens is None else f"{plan.most_tokens:,} tokens"
    dollars = "dollars unknown" if plan.most_dollars is None else f"${plan.most_dollars:.2f}"
    parts.append(Text("--- plan", style=LABEL))
    parts.append(
        facts(
            [
                ("problem", plan.problem),
                ("policy", f"{plan.policy}, prompts {plan.prompt_version}"),
                (
                    "search",
                    f"{plan.search}, goal {plan.goal}, {'any number of' if plan.turns is None else plan.turns} turns",
                ),
                ("tools", f"{', '.join(plan.targets)} on {plan.device}"),
                (
                    "sampling",
                    f"temperature {plan.sampling.temperature:g}, at most {plan.sampling.max_tokens} tokens a reply",
                ),
                ("estimate", f"about {plan.prompt_tokens:,} tokens in the first prompt; at most {most}, {dollars}"),
                ("note", plan.note),
            ]
        )
    )
    parts.append(Text("nothing was asked, run or written", style=QUIET))
    return Group(*parts)

"""Reads the options of a search, `--search` and `--goal`. Every refusal is an InputError."""

from __future__ import annotations

from kernelwright.agent.loop.search import SearchKind
from kernelwright.agent.loop.stopping import Goal, GoalKind
from kernelwright.errors import InputError


def choose_search(asked: str) -> SearchKind:
    """Reads `--search`. Raises InputError, which lists the choices."""
    try:
        return SearchKind(asked)
    except ValueError:
        raise InputError(f"--search {asked!r}: choose {', '.join(SearchKind)}") from None


def choose_goal(asked: str | None, device: str) -> Goal:
    """Returns the goal; without one asked for, nine tenths of the speed of light on a GPU; on a CPU, where no speed is
    measured, a correct kernel.
    """
    if asked is None:
        return Goal.parse("correct" if device == "cpu" else "roofline:0.9")
    goal = Goal.parse(asked)
    if device == "cpu" and goal.kind is not GoalKind.CORRECT:
        raise InputError(
            f"--goal {asked}: no speed is measured on a CPU: use --goal correct, or --device cuda:0"
        )
    return goal

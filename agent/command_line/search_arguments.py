"""Parses the options of a search, `--search` and `--goal`. Every refusal is an InputError."""

from __future__ import annotations

from kernelwright.agent.loop.search import SearchKind
from kernelwright.agent.loop.stopping import Goal, GoalKind
from kernelwright.errors import InputError


def choose_search(kind: str) -> SearchKind:
    """Parses `--search`. Raises InputError with a list of the choices."""
    try:
        return SearchKind(kind)
    except ValueError:
        raise InputError(f"--search {kind!r}: choose {', '.join(SearchKind)}") from None


def choose_goal(text: str | None, device: str) -> Goal:
    """Parses the goal.

    None means nine tenths of the speed of light on a GPU, and a correct kernel on a CPU, which
    measures no speed.
    """
    if text is None:
        return Goal.parse("correct" if device == "cpu" else "roofline:0.9")
    goal = Goal.parse(text)
    if device == "cpu" and goal.kind is not GoalKind.CORRECT:
        raise InputError(
            f"--goal {text}: no speed is measured on a CPU: use --goal correct, or --device cuda:0"
        )
    return goal

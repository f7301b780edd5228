"""Shows a problem and its gradients being solved: `agent solve --backward`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from kernelwright.agent.gradients.gradient_facts import GradientFacts
    from kernelwright.agent.loop.settings import Settings
    from kernelwright.policies.base import Policy
    from kernelwright.tools.problem import Problem


def finish_backward(
    problem: Problem,
    open_policy: Callable[[], Policy],
    settings: Settings,
    *,
    db: str | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Solves both problems with the live view, writes one file, shows the results, and exits."""
    from kernelwright.agent.export.kernel_file import check_path, default_path
    from kernelwright.agent.gradients.solving import solve_with_gradients
    from kernelwright.agent.runtime.interrupts import PAUSING, announce_stops
    from kernelwright.agent.viewing.show.progress import live

    path = check_path(out or default_path(problem))
    with announce_stops(PAUSING), live(quiet) as (watch, say):
        solved = solve_with_gradients(
            problem, open_policy, settings, db=db, output=path, watch=watch, say=say
        )
    if as_json:
        typer.echo(solved.model_dump_json(indent=2))
    else:
        from kernelwright.agent.viewing.show.outcomes import solved_view
        from kernelwright.agent.viewing.show.progress import console

        for each in (solved.forward, solved.gradients):
            if each is not None:
                console().print(solved_view(each))
        console().print(f"gradients  {differences_line(solved.facts)}", soft_wrap=True)
    raise typer.Exit(int(solved.exit))


def differences_line(facts: GradientFacts) -> str:
    """Says how far the reference's gradients are from differences of its outputs."""
    if facts.difference is None:
        return "the reference does not run in float64: its gradients were not compared with differences"
    if facts.agree:
        return (
            f"the reference's gradients equal differences in float64 within {facts.difference:.1g}"
        )
    return (
        f"the reference's gradients are not those of its outputs (they differ by {facts.difference:.1g}): "
        "a value is detached, or a backward of its own estimates them; the kernels compute what autograd gives"
    )

"""Defines `agent optimize`, which replaces the modules of a model by kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.agent.command_line.options import AsJson, Database, Debug, Quiet
from kernelwright.agent.command_line.problems import Init, Inputs, find_named

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from kernelwright.agent.optimizing.result import OptimizationResult
    from kernelwright.agent.solve.solving import Solved
    from kernelwright.tools.problem import Problem

ModelName = Annotated[
    str,
    typer.Argument(
        help="model.py[:Class] with a call on example inputs, package.module:Class, or a problem's name.",
        show_default=False,
    ),
]
Minutes = Annotated[
    float, typer.Option("--budget", min=0.1, help="Minutes for all regions together.")
]
Gradients = Annotated[
    bool, typer.Option("--gradients", help="Compare gradients of the whole model, too.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda:N.")]
Folder = Annotated[
    Path | None,
    typer.Option("--out", help="A new folder for the package.", show_default="MODEL_optimized"),
]
USUAL_MINUTES = 30.0
"""Default time budget of an optimization, in minutes."""


def optimize(
    model: ModelName,
    init: Init = None,
    inputs: Inputs = None,
    budget: Minutes = USUAL_MINUTES,
    gradients: Gradients = False,
    device: Device = "auto",
    out: Folder = None,
    db: Database = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Cut a model into regions, solve each as a problem of the store, and package the kernels that
    win.

    Regions are the model's own modules; equal ones are solved once. On a GPU a kernel is kept if it
    is faster than eager PyTorch and torch.compile. Without a GPU every correct kernel is kept, and
    nothing is timed. Ctrl-C stops: the same command goes on with the unsolved regions. Exits with 0
    if a region has a kernel, 1 if none has.
    """
    from kernelwright.agent.exporting.packaged_kernel import stem_of
    from kernelwright.agent.optimizing.optimize import optimize_model
    from kernelwright.agent.runtime.arguments import choose_device
    from kernelwright.agent.runtime.interrupts import PAUSING, announce_stops
    from kernelwright.agent.viewing.show.progress import progress

    problem = find_named(model, init=init or (), inputs=inputs or ())
    name = stem_of(problem.name)
    chosen_device = choose_device(device)
    with announce_stops(PAUSING), progress(quiet) as say:
        say("building the model")
        built, examples = build_model(problem, chosen_device)
        _, result = optimize_model(
            built,
            examples,
            region_solver(chosen_device, db, say),
            name=name,
            folder=out or Path(f"{name}_optimized"),
            database=db,
            seconds=budget * 60,
            gradients=gradients,
            say=say,
        )
    if as_json:
        typer.echo(result.model_dump_json(indent=2))
    else:
        _show(result)
    raise typer.Exit(0 if result.kept else 1)


def build_model(problem: Problem, device: str) -> tuple[torch.nn.Module, list[Any]]:
    """Returns the model of a reference in eval mode, and its example inputs, on a device.

    Runs the reference in this process, because the model is the user's own.
    """
    import torch

    from kernelwright.tools.references.reference import Reference

    reference = Reference(problem, device)
    with torch.random.fork_rng(devices=[]):
        built: torch.nn.Module = reference.model(0)
        examples = list(reference.arguments(reference.inputs(0)))
    return built.eval(), examples


def region_solver(
    device: str, db: str | None, say: Callable[[str], None]
) -> Callable[[Problem, Path, float], Solved]:
    """Returns a function that solves a region within seconds by the compiler's draft; products may be torch's."""
    from kernelwright.agent.command_line.options import (
        BudgetOptions,
        JudgingOptions,
        SamplingOptions,
    )
    from kernelwright.agent.command_line.solve import solve_settings
    from kernelwright.agent.solve.solving import solve_problem

    # Products and convolutions of a model may stay in torch's libraries.
    judging = JudgingOptions(device=device, own_work="report")
    usual = solve_settings("compiler", SamplingOptions(), BudgetOptions(), judging)

    def solve(problem: Problem, output: Path, seconds: float) -> Solved:
        minutes = seconds / 60 if seconds < float("inf") else None
        settings = usual.with_(budgets=usual.budgets.with_(minutes=minutes))
        policy = SamplingOptions().open_policy("compiler")
        try:
            return solve_problem(
                problem,
                policy,
                settings,
                db=db,
                output=output,
                watch=lambda *_: None,
                say=lambda doing: say(f"{problem.name}: {doing}"),
            )
        finally:
            policy.close()

    return solve


def _show(result: OptimizationResult) -> None:
    from kernelwright.agent.viewing.show.optimized import optimized_view
    from kernelwright.agent.viewing.show.progress import console

    console().print(optimized_view(result))

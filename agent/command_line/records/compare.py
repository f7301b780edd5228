"""Defines `agent compare`, which sets stored runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.agent.command_line.options import Database, Debug

if TYPE_CHECKING:
    from kernelwright.agent.comparison.runs import ComparedRuns
    from kernelwright.agent.comparison.trajectories import ComparedTrajectories
    from kernelwright.store.database import Store

Which = Annotated[
    list[str],
    typer.Argument(help="Trajectories' numbers (or last), or runs' names.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for machines.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Markdown, as for a pull request.")]


def compare(
    which: Which,
    as_json: AsJson = False,
    markdown: Markdown = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Put trajectories, or batch runs, side by side: turns aligned, the first difference of each,
    and differences in cost, speed and rungs.
    """
    from kernelwright.agent.runtime.databases import open_store
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.errors import InputError

    if len(which) < 2:
        raise InputError("give two or more to compare: numbers of trajectories, or names of runs")
    if as_json and markdown:
        raise InputError("choose one of --json and --markdown")
    with progress() as say, open_store(db, readonly=True) as store:
        say("reading what is compared")
        comparison = _compared(store, which)
    if as_json:
        typer.echo(comparison.model_dump_json(indent=2))
        return
    from kernelwright.agent.comparison.tables import run_tables, tables_markdown, trajectory_tables
    from kernelwright.agent.comparison.trajectories import ComparedTrajectories

    tables = (
        trajectory_tables(comparison)
        if isinstance(comparison, ComparedTrajectories)
        else run_tables(comparison)
    )
    if markdown:
        typer.echo(tables_markdown(" against ".join(which), tables))
        return
    from kernelwright.agent.viewing.show.listings import tables_view
    from kernelwright.agent.viewing.show.progress import console

    console().print(tables_view(tables))


def _compared(store: Store, names: list[str]) -> ComparedTrajectories | ComparedRuns:
    """Compares runs or trajectories; a word equal to a run's name means the run."""
    from kernelwright.agent.comparison.runs import compare_batches
    from kernelwright.agent.comparison.trajectories import compare_trajectories
    from kernelwright.agent.reporting.selecting import trajectory_id
    from kernelwright.errors import InputError

    run_names = {run.name for run in store.runs()}
    runs = [name for name in names if name in run_names]
    if len(runs) == len(names):
        return compare_batches(store, names)
    trajectories = [name for name in names if name not in run_names]
    if not runs:
        return compare_trajectories(store, [trajectory_id(store, name) for name in trajectories])
    if strange := [name for name in trajectories if not name.isdigit() and name != "last"]:
        listed = ", ".join(sorted(run_names)[:8])
        raise InputError(f"no run {strange[0]!r} in {store.where}: its runs are {listed}")
    raise InputError(
        f"{runs[0]} is a run and {trajectories[0]} a trajectory: compare runs with runs, trajectories with trajectories"
    )

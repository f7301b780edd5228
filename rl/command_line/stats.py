"""Defines `rl stats`, which counts the trainable turns of a log."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.rl.command_line.options.shared import AsJson, Debug


def stats(
    database: Annotated[
        str | None, typer.Argument(metavar="DATABASE", hidden=True, help="The old place of --db.")
    ] = None,
    db: Annotated[
        str | None,
        typer.Option(
            "--db",
            help="The database that the agent logged to: a file, or the URL of a server.",
            show_default=".kernelwright/runs.db",
        ),
    ] = None,
    run: Annotated[str | None, typer.Option(help="Only this run.")] = None,
    problem: Annotated[str | None, typer.Option(help="Only this problem.")] = None,
    revision: Annotated[
        str | None, typer.Option(help="Only turns of this policy revision.")
    ] = None,
    reward: Annotated[str, typer.Option(help="Formula: a preset, a .json file, or auto.")] = "auto",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Count a log's contents for training: groups, rewards and their variance, turns, faults,
    policies, and unusable turns.
    """
    from kernelwright.agent.runtime.arguments import named_database
    from kernelwright.agent.runtime.databases import open_store
    from kernelwright.agent.viewing.show.progress import console, progress
    from kernelwright.errors import InputError
    from kernelwright.rl.command_line.show.stats import stats_view
    from kernelwright.rl.log.defaults import choose_formula
    from kernelwright.rl.log.statistics import stats_of
    from kernelwright.store.records import CandidateFilter

    chosen = CandidateFilter(run=run, problem=problem, policy_revision=revision)
    with progress(as_json) as say, open_store(named_database(db, database), readonly=True) as store:
        say(f"reading {store.where}")
        figures = stats_of(store, choose_formula(store, reward, chosen), chosen)
    if figures.turns == 0:
        narrow = " with this filter" if run or problem or revision else ""
        raise InputError(
            f"{store.where} holds no turn{narrow}: agent solve and agent batch write them"
        )
    if as_json:
        typer.echo(figures.model_dump_json(indent=2))
    else:
        console().print(stats_view(figures))

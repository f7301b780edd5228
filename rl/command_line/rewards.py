"""Defines `rl rewards`, which scores stored verdicts under a formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.agent.command_line.modes import Modes
from kernelwright.rl.command_line.options.shared import AsJson, Debug

if TYPE_CHECKING:
    from kernelwright.agent.rewards.formula import Formula
    from kernelwright.store.database import Store
    from kernelwright.store.records import CandidateFilter

REWARDS_MODES = Modes(
    {
        "--presets": ("presets",),
        "--explain": ("explain", "db", "reward"),
        "--quarantine": ("quarantine", "db", "run"),
        "scoring": ("db", "reward", "run"),
    }
)


def rewards(
    context: typer.Context,
    db: Annotated[
        str | None, typer.Option("--db", help="The database.", show_default=".kernelwright/runs.db")
    ] = None,
    explain: Annotated[
        int | None,
        typer.Option(
            help="A candidate's number: prints each part of its reward, and why.",
            show_default=False,
        ),
    ] = None,
    reward: Annotated[
        str, typer.Option(help="The formula: a preset, a .json file with weights, or auto.")
    ] = "auto",
    run: Annotated[str | None, typer.Option(help="Only this run.", show_default=False)] = None,
    quarantine: Annotated[
        bool, typer.Option(help="Lists candidates that a person should look at.")
    ] = False,
    presets: Annotated[
        bool, typer.Option(help="Lists the presets, and what each reproduces.")
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compute and store the reward parts of every verdict; or explain a verdict, list the presets,
    or list suspicious rewards.
    """
    from kernelwright.agent.runtime.databases import open_store
    from kernelwright.rl.log.defaults import choose_formula
    from kernelwright.store.records import CandidateFilter

    chosen_mode = "--presets" if presets else "--explain" if explain is not None else ""
    REWARDS_MODES.refuse_unused(
        context, chosen_mode or ("--quarantine" if quarantine else "scoring")
    )
    if presets:
        _presets(as_json)
        return
    readonly = explain is not None or quarantine
    with open_store(db, readonly=readonly) as store:
        chosen = CandidateFilter(run=run)
        used = choose_formula(store, reward, chosen)
        if explain is not None:
            _explain(store, explain, used, as_json)
        elif quarantine:
            _quarantine(store, chosen, as_json)
        else:
            _store(store, used, chosen, as_json)


def _presets(as_json: bool) -> None:
    from kernelwright.agent.rewards.formula import FORMULA_PRESETS
    from kernelwright.agent.viewing.show.progress import console
    from kernelwright.rl.command_line.show.rewards import presets_view

    if as_json:
        import json

        typer.echo(
            json.dumps(
                {name: preset.model_dump(mode="json") for name, preset in FORMULA_PRESETS.items()},
                indent=2,
            )
        )
    else:
        console().print(presets_view(tuple(FORMULA_PRESETS.values())))


def _explain(store: Store, id: int, formula: Formula, as_json: bool) -> None:
    from kernelwright.agent.viewing.show.progress import console
    from kernelwright.rl.command_line.show.rewards import explained_view
    from kernelwright.rl.credit.explaining import explain_candidate

    explained = explain_candidate(store, id, formula)
    if as_json:
        typer.echo(explained.model_dump_json(indent=2))
    else:
        console().print(explained_view(explained))


def _store(store: Store, formula: Formula, chosen: CandidateFilter, as_json: bool) -> None:
    from kernelwright.agent.rewards.storing import store_rewards
    from kernelwright.agent.viewing.show.progress import progress
    from kernelwright.errors import InputError

    with progress(as_json) as say:
        done = store_rewards(store, formula, chosen, say)
    if done.verdicts == 0:
        raise InputError(
            f"{store.where} holds no verdict with this filter: agent solve and agent batch write them"
        )
    if as_json:
        typer.echo(done.model_dump_json(indent=2))
        return
    typer.echo(
        f"{done.stored:,} of {done.verdicts:,} verdicts scored by {done.formula}: mean {done.mean:.4f}, "
        f"{done.positive:.1%} above 0.1"
    )
    if done.unmeasured:
        typer.echo(
            f"{done.unmeasured:,} correct ones were judged on a CPU only: this formula's speed and share "
            "count 0 for "
            "them"
        )


def _quarantine(store: Store, chosen: CandidateFilter, as_json: bool) -> None:
    from kernelwright.agent.viewing.show.progress import console, progress
    from kernelwright.rl.command_line.show.rewards import suspects_view
    from kernelwright.rl.training.safety.suspects import suspects_of

    with progress(as_json) as say:
        say(f"looking through {store.where}")
        suspects = suspects_of(store, chosen)
    if as_json:
        import json

        typer.echo(json.dumps([suspect.model_dump(mode="json") for suspect in suspects], indent=2))
    else:
        console().print(suspects_view(suspects))

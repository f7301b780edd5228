"""Defines `agent replay`, which repeats a stored trajectory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.agent.command_line.options import (
    SEARCH_PANEL,
    AsJson,
    BudgetOptions,
    Database,
    Debug,
    Device,
    Quiet,
    expand_groups,
)
from kernelwright.agent.command_line.policy.options import SamplingOptions
from kernelwright.agent.command_line.solve import KernelFile, finish_solve

if TYPE_CHECKING:
    from kernelwright.policies.base import Policy

Which = Annotated[
    str | None, typer.Argument(help="A trajectory's number, or last.", show_default=False)
]
Run = Annotated[str | None, typer.Option(help="All trajectories of a batch run.")]
Execute = Annotated[
    bool,
    typer.Option("--execute", help="Run today's tools on the stored candidates, report drift."),
]
Rescore = Annotated[
    bool,
    typer.Option("--rescore", help="The same, and save the new verdicts; the old ones are kept."),
]
Fork = Annotated[
    int | None, typer.Option(min=1, help="Branch: a new trajectory that goes on after this turn.")
]
ForkPolicy = Annotated[str | None, typer.Option("--policy", help="Who goes on after --fork.")]
Search = Annotated[
    str | None,
    typer.Option(help="serial, best-of-n or beam, after --fork.", show_default="as it was"),
]
ForkGoal = Annotated[
    str | None,
    typer.Option(
        "--goal",
        help="correct, eager:1.2, compile:1.1 or sol:0.9, after --fork.",
        show_default="as it was",
        rich_help_panel=SEARCH_PANEL,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Trajectories at once with --run.", show_default="one a core"),
]


@expand_groups
def replay(
    sampling: SamplingOptions,
    budget: BudgetOptions,
    id: Which = None,
    run: Run = None,
    execute: Execute = False,
    rescore: Rescore = False,
    fork: Fork = None,
    policy: ForkPolicy = None,
    search: Search = None,
    goal: ForkGoal = None,
    out: KernelFile = None,
    device: Device = "auto",
    workers: Workers = None,
    db: Database = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Send a stored trajectory through the machine again: show it, judge it with today's tools, or
    branch off.

    The replies are the stored ones. Exits with 1 if a verdict differs, 130 (SIGTERM: 143) if
    interrupted; with --fork like `agent solve`.
    """
    from kernelwright.agent.runtime.arguments import choose_device
    from kernelwright.errors import InputError

    if fork is None and policy is not None:
        raise InputError("--policy is for a branch: say after which turn, such as --fork 3")
    if fork is None:
        replay_device = choose_device(device) if execute or rescore else "cpu"
        return _replay(
            id,
            run,
            execute,
            rescore,
            replay_device,
            workers or os.cpu_count() or 2,
            db,
            as_json,
            quiet,
        )
    if id is None or run is not None or policy is None or execute or rescore:
        raise InputError(
            "--fork TURN needs a trajectory and --policy, and neither --run, --execute nor --rescore"
        )
    changes = _sampling_changes(sampling) | {
        "policy": sampling.policy_label(policy),
        "device": choose_device(device),
        "budgets": budget.budgets(),
    }
    return _fork(
        id,
        fork,
        changes,
        (search, goal),
        lambda: sampling.open_policy(policy),
        db,
        out,
        as_json,
        quiet,
    )


def _sampling_changes(sampling: SamplingOptions) -> dict[str, object]:
    """Returns the sampling settings set by the user."""
    changes: dict[str, object] = {}
    for name in ("temperature", "reply_tokens", "seed", "prompts"):
        value = getattr(sampling, name)
        if value is not None:
            changes[name] = value
    return changes


def _replay(
    id: str | None, run: str | None, execute: bool, rescore: bool, device: str, workers: int, db: str | None,
    as_json: bool, quiet: bool
) -> None:  # fmt: skip
    from kernelwright.agent.replay.rejudging import ReplayRequest, replay_all
    from kernelwright.agent.runtime.errors import Exit
    from kernelwright.agent.viewing.show.progress import console, progress

    request = ReplayRequest(
        id=id,
        run=run,
        execute=execute,
        rescore=rescore,
        device=device,
        workers=workers if run else 1,
    )
    with progress(quiet) as say:
        replays = replay_all(request, db, say)
    if as_json:
        typer.echo(replays.model_dump_json(indent=2))
    else:
        from kernelwright.agent.viewing.show.outcomes import replays_view

        console().print(replays_view(replays))
    if replays.interrupted:
        raise typer.Exit(int(Exit.INTERRUPTED))
    raise typer.Exit(int(Exit.INCORRECT if replays.verdicts_changed else Exit.DONE))


def _fork(
    id: str, turn: int, changes: dict[str, object], chosen: tuple[str | None, str | None],
    open_policy: Callable[[], Policy], db: str | None, out: Path | None, as_json: bool,
    quiet: bool,
) -> None:  # fmt: skip
    from kernelwright.agent.command_line.search_arguments import choose_goal, choose_search
    from kernelwright.agent.loop.settings import Settings
    from kernelwright.agent.reporting.selecting import fork_point, trajectory_id
    from kernelwright.agent.runtime.databases import open_store

    with open_store(db, readonly=True) as store:
        row = store.trajectory(trajectory_id(store, id))
        origin, problem = fork_point(store, row, turn), store.problem(row.id)
    search, goal = chosen
    settings = Settings.of(row).with_(**changes)
    if search is not None:
        settings = settings.with_(search=choose_search(search))
    settings = settings.with_(goal=choose_goal(goal or row.goal, settings.device))
    finish_solve(
        problem, open_policy(), settings, db, out, as_json, forked_from=origin, quiet=quiet
    )

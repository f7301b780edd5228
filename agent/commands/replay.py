"""`agent replay`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.commands.solve import (
    Adapter,
    AsJson,
    Database,
    Debug,
    Device,
    GoalText,
    MaxGpuSeconds,
    MaxMinutes,
    MaxTokens,
    MaxUsd,
    Output,
    Patience,
    PromptFolder,
    ReplyTokens,
    Seed,
    Temperature,
    budgets,
    finish_solve,
)

if TYPE_CHECKING:
    pass

Which = Annotated[str | None, typer.Argument(help="A trajectory's number, or last.", show_default=False)]
Run = Annotated[str | None, typer.Option(help="All trajectories of a batch run.")]
Execute = Annotated[bool, typer.Option("--execute", help="Run today's tools on the stored candidates, report drift.")]
Rescore = Annotated[bool, typer.Option("--rescore", help="The same, and save the new verdicts; the old ones are kept.")]
Fork = Annotated[int | None, typer.Option(min=1, help="Branch: a new trajectory that goes on after this turn.")]
ForkPolicy = Annotated[str | None, typer.Option("--policy", help="Who goes on after --fork.")]
Turns = Annotated[int, typer.Option(min=1, help="Replies to ask for at most, after --fork.")]
Search = Annotated[str | None, typer.Option(help="serial, best-of-n or beam, after --fork.", show_default="as it was")]
Workers = Annotated[int | None, typer.Option(min=1, help="Trajectories at once with --run.", show_default="one a core")]


def replay(
    id: Which = None, run: Run = None, execute: Execute = False, rescore: Rescore = False, fork: Fork = None,
    policy: ForkPolicy = None, turns: Turns = 10, search: Search = None, goal: GoalText = None,
    max_tokens: MaxTokens = None, max_usd: MaxUsd = None, max_gpu_seconds: MaxGpuSeconds = None,
    max_minutes: MaxMinutes = None, temperature: Temperature = None, reply_tokens: ReplyTokens = None,
    seed: Seed = None, adapter: Adapter = None, prompts: PromptFolder = None, patience: Patience = 600.0,
    output: Output = None, device: Device = "auto", workers: Workers = None, db: Database = None,
    as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Send a stored trajectory through the machine again: show it, judge it with today's tools, or branch off.

    The replies are the stored ones. Exits with 1 where a verdict differs, 130 where it was interrupted; with --fork as `agent solve` does.
    """
    from agent.asked import choose_device
    from agent.exits import InputError

    if fork is None and policy is not None:
        raise InputError("--policy is for a branch: say after which turn, such as --fork 3")
    if fork is None:
        place = choose_device(device) if execute or rescore else "cpu"
        return _replay(id, run, execute, rescore, place, workers or os.cpu_count() or 2, db, as_json)
    if id is None or run is not None or policy is None or execute or rescore:
        raise InputError("--fork TURN needs a trajectory and --policy, and neither --run, --execute nor --rescore")
    limits = budgets(turns, max_tokens, max_usd, max_gpu_seconds, max_minutes)
    asked = {"temperature": temperature, "reply_tokens": reply_tokens, "seed": seed, "prompts": prompts}
    told: dict[str, object] = {name: value for name, value in asked.items() if value is not None}
    named = policy if adapter is None else f"{policy} with {adapter}"
    told |= {"policy": named, "device": choose_device(device), "budgets": limits}
    return _fork(id, fork, told, (search, goal), (policy, adapter, patience), db, output, as_json)


def _replay(
    id: str | None, run: str | None, execute: bool, rescore: bool, device: str, workers: int, db: str | None, as_json: bool
) -> None:  # fmt: skip
    from agent.exits import Exit
    from agent.rejudging import Asked, replay_all
    from agent.show.terminal import console, progress

    asked = Asked(id=id, run=run, execute=execute, rescore=rescore, device=device, workers=workers if run else 1)
    with progress(quiet=as_json) as say:
        replays = replay_all(asked, db, say)
    if as_json:
        typer.echo(replays.model_dump_json(indent=2))
    else:
        from agent.show.replayed import replays_view

        console().print(replays_view(replays))
    if replays.interrupted:
        raise typer.Exit(int(Exit.INTERRUPTED))
    raise typer.Exit(int(Exit.INCORRECT if replays.verdicts_changed else Exit.DONE))


def _fork(
    id: str, turn: int, told: dict[str, object], chosen: tuple[str | None, str | None],
    opening: tuple[str, str | None, float], db: str | None, output: Path | None, as_json: bool,
) -> None:  # fmt: skip
    from agent.asked import choose_goal, choose_search
    from agent.databases import open_store
    from agent.selecting import fork_point, trajectory_id
    from agent.settings import Settings
    from policies.names import open_policy

    with open_store(db, readonly=True) as store:
        row = store.trajectory(trajectory_id(store, id))
        origin, problem = fork_point(store, row, turn), store.problem(row.id)
    search, goal = chosen
    settings = Settings.of(row).with_(**told)
    if search is not None:
        settings = settings.with_(search=choose_search(search))
    settings = settings.with_(goal=choose_goal(goal or row.goal, settings.device))
    policy, adapter, patience = opening
    opened = open_policy(policy, key=os.environ.get("OPENAI_API_KEY"), adapter=adapter, patience=patience)
    finish_solve(problem, opened, settings, db, output, as_json, forked_from=origin)

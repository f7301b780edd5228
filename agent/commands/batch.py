"""`agent batch`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    OwnWork,
    Patience,
    PolicyName,
    PromptFolder,
    ReplyTokens,
    Search,
    Seed,
    Targets,
    Temperature,
    Timeout,
    Turns,
    budgets,
)

if TYPE_CHECKING:
    from agent.batching import Batched
    from agent.settings import Settings
    from policies.base import Policy
    from tools.problem import Problem

What = Annotated[
    list[str] | None,
    typer.Argument(
        help="kernelbench, tritonbench-t, catalogue, a folder, a parquet file, or problems.", show_default=False
    ),
]
Problems = Annotated[list[str] | None, typer.Option("--problems", help="A problem; may be given several times.")]
Place = Annotated[
    Path | None,
    typer.Option(
        "--path", "--kernelbench", "--tritonbench", help="Where the suite's checkout, or its parquet file, is."
    ),
]
Level = Annotated[int | None, typer.Option(min=1, help="Of KernelBench; 1 to 3 without.")]
Samples = Annotated[int, typer.Option(min=1, help="Trajectories a problem. More can be added later.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many problems.")]
RunName = Annotated[str | None, typer.Option("--run", help="Its name.", show_default="from the suite")]
Out = Annotated[Path | None, typer.Option(help="The folder for report and kernels.", show_default="runs/RUN")]
AtOnce = Annotated[int, typer.Option(min=1, help="Runs at once.")]
Workers = Annotated[int | None, typer.Option(min=1, help="CPU rungs at once.", show_default="one a core")]
Width = Annotated[int, typer.Option(min=1, help="Drafts of best-of-n, width of the beam.")]
Against = Annotated[str | None, typer.Option(help="Another run, for the paired tests.")]


def batch(
    what: What = None,
    problems: Problems = None,
    path: Place = None,
    level: Level = None,
    limit: Limit = None,
    samples: Samples = 1,
    run: RunName = None,
    policy: PolicyName = "embedded",
    target: Targets = None,
    device: Device = "auto",
    turns: Turns = 10,
    max_tokens: MaxTokens = None,
    max_usd: MaxUsd = None,
    max_gpu_seconds: MaxGpuSeconds = None,
    max_minutes: MaxMinutes = None,
    search: Search = "serial",
    width: Width = 4,
    goal: GoalText = None,
    temperature: Temperature = None,
    reply_tokens: ReplyTokens = None,
    seed: Seed = None,
    adapter: Adapter = None,
    prompts: PromptFolder = None,
    patience: Patience = 600.0,
    timeout: Timeout = 600.0,
    db: Database = None,
    own_work: OwnWork = "strict",
    out: Out = None,
    at_once: AtOnce = 32,
    workers: Workers = None,
    against: Against = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write kernels for many problems at once; then a report: compiled, correct, fast_p, pass@k, speedups, cost.

    Budgets are a trajectory's. Ctrl-C pauses, and the same command goes on; with more --samples, or another --policy, it adds to the run.
    Exits with 0 where every trajectory is finished, 2 where you must change something, 3 for this machine's trouble, 130 where it was paused.
    """
    from agent.asked import choose_device, choose_goal, choose_search, choose_targets, own_work_mode
    from agent.settings import Settings

    what = [*(what or []), *(problems or [])]
    chosen, name = _chosen(what, path, level, limit, run)
    place = choose_device(device)
    settings = Settings(
        policy=policy if adapter is None else f"{policy} with {adapter}", targets=choose_targets(target or [], place),
        device=place, own_work=own_work_mode(own_work), search=choose_search(search), samples=width,
        goal=choose_goal(goal, place), budgets=budgets(turns, max_tokens, max_usd, max_gpu_seconds, max_minutes),
        temperature=temperature, reply_tokens=reply_tokens, seed=seed, prompts=prompts,
    )  # fmt: skip
    how = {
        "samples": samples,
        "db": db,
        "at_once": at_once,
        "workers": workers or os.cpu_count() or 2,
        "against": against,
    }
    _run(chosen, settings, _opened(policy, adapter, patience, timeout), name, out or Path("runs") / name, how, as_json)


def _chosen(
    what: list[str], path: Path | None, level: int | None, limit: int | None, run: str | None
) -> tuple[list[Problem], str]:
    """The problems, and what the run is called."""
    from agent.suite_choice import choose_problems, default_run

    return choose_problems(what, path, level, limit), run or default_run(what, level)


def _opened(policy: str, adapter: str | None, patience: float, timeout: float) -> Policy:
    from policies.names import open_policy

    return open_policy(
        policy, key=os.environ.get("OPENAI_API_KEY"), adapter=adapter, patience=patience, timeout=timeout
    )


def _run(
    chosen: list[Problem],
    settings: Settings,
    policy: Policy,
    name: str,
    folder: Path,
    how: dict[str, Any],
    as_json: bool,
) -> None:
    from agent.batching import run_batch
    from agent.show.batch import live_batch
    from agent.suite_choice import check_folder

    check_folder(folder)
    try:
        with live_batch(quiet=as_json) as (watch, say):
            batched = run_batch(chosen, policy, settings, name=name, folder=folder, watch=watch, say=say, **how)
    finally:
        policy.close()
    _show(batched, as_json)


def _show(batched: Batched, as_json: bool) -> None:
    from agent.exits import Exit

    if as_json:
        typer.echo(batched.model_dump_json(indent=2))
    else:
        from agent.show.batch import batched_view
        from agent.show.terminal import console

        console().print(batched_view(batched))
    unfinished = batched.standing.done < batched.standing.jobs
    if batched.interrupted:
        raise typer.Exit(int(Exit.INTERRUPTED))
    raise typer.Exit(int(Exit.INFRASTRUCTURE if unfinished else Exit.DONE))

"""Defines `agent batch`, which solves a suite of problems and resumes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.agent.command_line.judges import Ray, Server, open_remote_judges
from kernelwright.agent.command_line.options import (
    SEARCH_PANEL,
    AsJson,
    BudgetOptions,
    Database,
    Debug,
    DraftOptions,
    JudgingOptions,
    Quiet,
    SearchOptions,
    expand_groups,
    refuse_unused_options,
    settings_of,
)
from kernelwright.agent.command_line.policy.options import PolicyName, SamplingOptions
from kernelwright.agent.command_line.problems import note_near_names

if TYPE_CHECKING:
    from kernelwright.agent.batch.running import BatchResult
    from kernelwright.agent.loop.settings import Settings
    from kernelwright.policies.base import Policy
    from kernelwright.tools.problem import Problem

What = Annotated[
    list[str] | None,
    typer.Argument(
        help="kernelbench, tritonbench-t, catalogue, a folder, a parquet file, or problems.",
        show_default=False,
    ),
]
Problems = Annotated[
    list[str] | None, typer.Option("--problems", help="A problem; may be given several times.")
]
Place = Annotated[
    Path | None,
    typer.Option(
        "--path",
        "--kernelbench",
        "--tritonbench",
        help="Where the suite's checkout, or its parquet file, is.",
    ),
]
Level = Annotated[
    int | None, typer.Option(min=1, help="The level of KernelBench.", show_default="1 to 3")
]
Samples = Annotated[
    int, typer.Option(min=1, help="Trajectories for each problem. More can be added later.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many problems.")]
RunName = Annotated[
    str | None, typer.Option("--run", help="The name of the run.", show_default="from the suite")
]
Out = Annotated[
    Path | None, typer.Option(help="The folder for report and kernels.", show_default="runs/RUN")
]
AtOnce = Annotated[int, typer.Option(min=1, help="Trajectories under way at once.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Candidates that are compiled or interpreted at once.",
        show_default="one a core",
    ),
]
Tune = Annotated[
    bool,
    typer.Option(
        "--tune/--no-tune",
        help="Tune the numbers of correct kernels. Needs a GPU here.",
        rich_help_panel=SEARCH_PANEL,
    ),
]
Against = Annotated[str | None, typer.Option(help="Another run, for the paired tests.")]


@expand_groups
def batch(
    context: typer.Context,
    sampling: SamplingOptions,
    search: SearchOptions,
    budget: BudgetOptions,
    judging: JudgingOptions,
    drafting: DraftOptions,
    what: What = None,
    problems: Problems = None,
    path: Place = None,
    level: Level = None,
    limit: Limit = None,
    samples: Samples = 1,
    run: RunName = None,
    policy: PolicyName = "embedded",
    db: Database = None,
    out: Out = None,
    at_once: AtOnce = 32,
    workers: Workers = None,
    against: Against = None,
    tune: Tune = False,
    server: Server = None,
    ray: Ray = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write kernels for many problems at once, then print a report: compiled, correct, pass@k,
    cost, and on a GPU speed.

    Budgets hold for each trajectory. Ctrl-C or SIGTERM pauses, and the same command goes on; with
    more --samples, or another --policy, it adds to the run. Exits with 0 if every trajectory is
    finished, 2 if you must change something (no problem could be judged), 3 for a failure of this
    machine, 130 (SIGTERM: 143) if paused.
    """
    names = [*(what or []), *(problems or [])]
    _say_skipped(names)
    chosen_problems, name = _chosen(names, path, level, limit, run)
    note_near_names(chosen_problems)
    _check_draft(drafting.draft, len(chosen_problems))
    with open_remote_judges(server, ray, judging.device) as judges:
        remote_device = judges.device if judges is not None else None
        settings = settings_of(
            policy, sampling, search, budget, judging, drafting, remote=remote_device, tune=tune
        )
        refuse_unused_options(context, settings, policy)
        if tune:
            _check_tuning(settings, has_local_judge=judges is None)
        cores = judges.capacity if judges else os.cpu_count() or 2
        options: dict[str, Any] = {
            "samples": samples,
            "db": db,
            "at_once": at_once,
            "workers": workers or cores,
            "against": against,
        }
        if judges is not None:
            options["judges"] = judges.evaluates
        _run(
            chosen_problems,
            settings,
            sampling.open_policy(policy),
            name,
            out or Path("runs") / name,
            options,
            as_json,
            quiet,
        )


def _say_skipped(names: list[str]) -> None:
    """Lists on stderr the skipped files of the named folders."""
    from kernelwright.agent.problems.finding import SUITE_NAMES, files_without_model, unreadable

    for name in names:
        folder = Path(name)
        if name in SUITE_NAMES or not folder.is_dir():
            continue
        if skipped := files_without_model(folder):
            typer.echo(
                f"skipped, since they define no Model: {', '.join(map(str, skipped))}", err=True
            )
        for reason in unreadable(folder):
            typer.echo(f"skipped: {reason}", err=True)


def _check_tuning(settings: Settings, has_local_judge: bool) -> None:
    """Raises InputError if kernels are to be tuned and no GPU of this machine judges."""
    from kernelwright.errors import InputError

    if not has_local_judge or not settings.tune:
        raise InputError(
            "--tune times kernels on a GPU of this machine: leave it out, or use one with --device"
        )


def _check_draft(draft: str, problems: int) -> None:
    """Raises InputError if a file with one kernel is the draft of several problems."""
    if problems > 1 and Path(draft).is_file():
        from kernelwright.errors import InputError

        raise InputError(
            f"--draft {draft} is one kernel, and these are {problems} problems: name the one it is for"
        )


def _chosen(
    names: list[str], path: Path | None, level: int | None, limit: int | None, run: str | None
) -> tuple[list[Problem], str]:
    """Returns the problems, and the name of the run."""
    from kernelwright.agent.batch.suite_choice import choose_problems, default_run

    return choose_problems(names, path, level, limit), run or default_run(names, level)


def _run(
    chosen: list[Problem],
    settings: Settings,
    policy: Policy,
    name: str,
    folder: Path,
    options: dict[str, Any],
    as_json: bool,
    quiet: bool,
) -> None:
    from kernelwright.agent.batch.running import run_batch
    from kernelwright.agent.runtime.errors import command_seconds
    from kernelwright.agent.runtime.interrupts import announce_stops
    from kernelwright.agent.runtime.output_files import refuse_unwritable_folder
    from kernelwright.agent.viewing.show.batch import PAUSING_MESSAGE, live_batch

    refuse_unwritable_folder(folder)
    try:
        with announce_stops(PAUSING_MESSAGE), live_batch(quiet) as live:
            batched = run_batch(
                chosen, policy, settings, name=name, folder=folder, watch=live.watch, say=live.say, tell=live.tell,
                **options,
            )  # fmt: skip
    finally:
        policy.close()
    _show(batched.with_(seconds=command_seconds()), as_json)


def _show(batched: BatchResult, as_json: bool) -> None:
    if as_json:
        typer.echo(batched.model_dump_json(indent=2))
    else:
        from kernelwright.agent.viewing.show.batch import batched_view
        from kernelwright.agent.viewing.show.progress import console

        console().print(batched_view(batched))
    raise typer.Exit(int(batched.exit))

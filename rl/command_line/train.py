"""`rl train`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.rl.training.online.rollout_arguments import (
    Against,
    Database,
    Engine,
    Flat,
    Group,
    Judge,
    Lag,
    OwnWork,
    Places,
    Problems,
    Prompts,
    ReplyTokens,
    Turns,
    Workers,
    rollout_fields,
)
from kernelwright.rl.training.training_arguments import (
    Adapter,
    AsJson,
    BaselineName,
    Debug,
    Device,
    Gamma,
    Lora,
    MaxMinutes,
    MaxSteps,
    Output,
    PolicyName,
    Reward,
    Seed,
    Settings,
    StorageName,
    training_fields,
)

if TYPE_CHECKING:
    from kernelwright.rl.training.online.options import OnlineOptions
    from kernelwright.rl.training.options import LogOptions

Log = Annotated[
    str | None, typer.Option("--from-trajectories", help="Train from this database alone.", show_default=False)
]
Online = Annotated[bool, typer.Option("--online", help="Sample, judge and train, round after round.")]
Base = Annotated[
    str | None, typer.Option(help="Instead of --policy: a model folder or a hub name.", show_default=False)
]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter", help="NAME=VALUE: run, problem, policy_revision, since=2d ... May be repeated.", show_default=False
    ),
]
MethodName = Annotated[
    str | None,
    typer.Option("--method", help="grpo, rft, dpo or kto.", show_default="what the log is good for"),
]
Epochs = Annotated[float, typer.Option(min=0.01, help="Passes over the log, where --max-steps says nothing.")]
MaxAge = Annotated[
    int | None, typer.Option(min=0, help="Refuse turns of policies further back, in revisions.", show_default=False)
]
MaxLength = Annotated[
    int | None,
    typer.Option(min=16, help="Refuse turns with more tokens, prompt and reply together.", show_default=False),
]
Decoupled = Annotated[
    bool, typer.Option(help="trl's importance-sampling correction round a region that moves with the policy.")
]
Force = Annotated[bool, typer.Option(help="Train on a log that is worn out all the same.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be used, and stop.")]


def train(
    from_trajectories: Log = None, online: Online = False, policy: PolicyName = "embedded", base: Base = None,
    adapter: Adapter = None,
    output: Output = Path("trained"), method: MethodName = None, reward: Reward = "auto", filters: Filters = None,
    gamma: Gamma = 0.4,
    baseline: BaselineName = "leave-one-out", max_steps: MaxSteps = None, epochs: Epochs = 2.0,
    max_minutes: MaxMinutes = None,
    max_age: MaxAge = None, max_length: MaxLength = None, lora: Lora = False, decoupled: Decoupled = False,
    settings: Settings = None,
    device: Device = "auto", seed: Seed = 0, storage: StorageName = "fp32", force: Force = False,
    dry_run: DryRun = False,
    problems: Problems = None, against: Against = None, db: Database = None, prompts: Prompts = 32, group: Group = 12,
    turns: Turns = 2, workers: Workers = None,
    judge: Judge = "interpreted", own_work: OwnWork = "strict", lag: Lag = 1, zero_variance: Flat = "drop",
    reply_tokens: ReplyTokens = None, engine: Engine = "auto",
    places: Places = None, as_json: AsJson = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Train the policy on what the agent logged, or online.

    Says first what it will use; what cannot be trained on is refused with the reason.

    The same command goes on where it was stopped. Exits with 0 done, 2 where you must change something, 3 for an alarm
    or this machine's trouble, 130 paused.
    """
    from kernelwright.errors import InputError

    if (from_trajectories is None) == (not online):
        raise InputError("give --from-trajectories DB or --online")
    shared = training_fields(
        base or policy, adapter, output, reward, gamma, baseline, max_steps, max_minutes, lora, settings, device, seed,
        storage
    ) | {"method": _method(method), "max_age": max_age, "max_length": max_length, "decoupled": decoupled,
    "epochs": epochs}  # fmt: skip
    if from_trajectories is not None:
        _from_log(
            {**shared, "db": from_trajectories, "filters": tuple(filters or ()), "force": force}, dry_run, as_json
        )
        return
    more = rollout_fields(problems, against, db, prompts, group, turns, workers, judge, own_work, lag, reply_tokens) | {
        "engine": engine,
        "key": os.environ.get("OPENAI_API_KEY"),
        "places": places,
        "resample": _resample(zero_variance),
    }
    _online({**shared, **more}, as_json)


def _method(asked: str | None) -> Any:
    from kernelwright.errors import InputError
    from kernelwright.rl.training.options import Method

    try:
        return None if asked is None else Method(asked)
    except ValueError:
        raise InputError(f"--method {asked!r}: choose {', '.join(Method)}") from None


def _resample(asked: str) -> bool:
    from kernelwright.errors import InputError

    if asked not in ("drop", "resample"):
        raise InputError(f"--zero-variance {asked!r}: choose drop or resample")
    return asked == "resample"


def _from_log(asked: dict[str, Any], dry_run: bool, as_json: bool) -> None:
    from kernelwright.rl.training.early import look_at_log
    from kernelwright.rl.training.options import LogOptions

    options = LogOptions(**asked)
    look_at_log(options)
    _trained_from_log(options, dry_run, as_json)


def _trained_from_log(options: LogOptions, dry_run: bool, as_json: bool) -> None:
    from kernelwright.agent.viewing.show.progress import console
    from kernelwright.rl.command_line.show.training import live_training, plan_view, trained_view
    from kernelwright.rl.training.from_log import train_from_log
    from kernelwright.rl.training.processes import part

    def show(plan: Any) -> None:
        if as_json and dry_run:
            typer.echo(plan.model_dump_json(indent=2))
        elif not as_json:
            console().print(plan_view(plan))

    with live_training(quiet=as_json) as (watch, say):
        trained = train_from_log(options, show=show, say=say, watch=watch, dry_run=dry_run)
    part()
    if trained is not None and trained.first:
        typer.echo(trained.model_dump_json(indent=2) if as_json else trained_view(trained))


def _online(asked: dict[str, Any], as_json: bool) -> None:
    from kernelwright.rl.training.early import look_at_problems
    from kernelwright.rl.training.online.options import OnlineOptions

    options = OnlineOptions(**asked)
    look_at_problems(options)
    _trained_online(options, as_json)


def _trained_online(options: OnlineOptions, as_json: bool) -> None:
    from kernelwright.rl.command_line.show.training import live_training, trained_view
    from kernelwright.rl.training.online.training import train_online
    from kernelwright.rl.training.processes import part

    with live_training(quiet=as_json) as (watch, say):
        trained = train_online(options, say=say, watch=watch)
    part()
    if trained.first:
        typer.echo(trained.model_dump_json(indent=2) if as_json else trained_view(trained))

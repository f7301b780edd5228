"""Defines `rl train`, which trains a policy from a log or online."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from kernelwright.agent.command_line.modes import Modes, names_of
from kernelwright.agent.command_line.options import expand_groups
from kernelwright.rl.command_line.options.planning import PlanOptions
from kernelwright.rl.command_line.options.rollouts import (
    EngineOptions,
    HeldOutEvaluationOptions,
    RolloutOptions,
)
from kernelwright.rl.command_line.options.shared import Adapter, AsJson, Debug, Gpus
from kernelwright.rl.command_line.options.training import (
    DistributionOptions,
    PolicyName,
    RewardOptions,
    TrainerOptions,
)

if TYPE_CHECKING:
    from kernelwright.rl.training.online.options import OnlineOptions
    from kernelwright.rl.training.options import LogOptions

Out = Annotated[
    Path,
    typer.Option(
        "--out", help="The folder for the policy; checkpoints lie beside it in OUT.training."
    ),
]
Online = Annotated[
    bool, typer.Option("--online", help="Sample, judge and train, round after round.")
]


@dataclass(frozen=True)
class ModelOptions:
    """Options for the trained model."""

    PANEL: ClassVar[str] = "Policy"
    policy: PolicyName = "embedded"
    base: Annotated[
        str | None,
        typer.Option(help="Instead of --policy: a model folder or a hub name.", show_default=False),
    ] = None
    adapter: Adapter = None
    lora: Annotated[
        bool,
        typer.Option(
            "--lora", help="Train a LoRA adapter; without it all weights, or --adapter's."
        ),
    ] = False

    def fields(self) -> dict[str, Any]:
        """Returns fields of TrainOptions. Raises InputError for contradictory options."""
        from kernelwright.errors import InputError

        if self.lora and self.adapter is not None:
            raise InputError(
                "--adapter continues an existing adapter and --lora starts a new one: give only one of them"
            )
        return {"policy": self.base or self.policy, "adapter": self.adapter, "lora": self.lora}


@dataclass(frozen=True)
class LogChoice:
    """Options for the choice of turns from a log."""

    PANEL: ClassVar[str] = "From a log"
    from_trajectories: Annotated[
        str | None,
        typer.Option(
            "--from-trajectories", help="Train from this database alone.", show_default=False
        ),
    ] = None
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", help="NAME=VALUE: run, problem, policy_revision, since=2d ... May be repeated.",
        show_default=False),
    ] = None  # fmt: skip
    max_age: Annotated[
        int | None,
        typer.Option(
            min=0, help="Refuse turns of policies further back, in revisions.", show_default=False
        ),
    ] = None
    max_length: Annotated[
        int | None,
        typer.Option(
            min=16,
            help="Refuse turns with more tokens, prompt and reply together.",
            show_default=False,
        ),
    ] = None
    epochs: Annotated[
        float, typer.Option(min=0.01, help="Passes over the log, where --max-steps says nothing.")
    ] = 2.0
    force: Annotated[bool, typer.Option(help="Train on a log that is worn out all the same.")] = (
        False
    )
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be used, and stop.")
    ] = False

    def fields(self) -> dict[str, Any]:
        """Returns the options as the fields of `LogOptions`."""
        return {
            "db": self.from_trajectories, "filters": tuple(self.filters or ()), "max_age": self.max_age,
            "max_length": self.max_length, "epochs": self.epochs, "force": self.force,
        }  # fmt: skip


@dataclass(frozen=True)
class MethodOptions:
    """Options for the training method and its limits."""

    PANEL: ClassVar[str] = "Method and limits"
    method: Annotated[
        str | None,
        typer.Option(
            "--method", help="grpo, rft, dpo or kto.", show_default="what the log is good for"
        ),
    ] = None
    decoupled: Annotated[
        bool,
        typer.Option(
            help="trl's importance-sampling correction round a region that moves with the policy."
        ),
    ] = False
    mask_thoughts: Annotated[
        bool,
        typer.Option(
            "--mask-thoughts",
            help="Leave what a reply says up to </think> out of the loss; grpo and rft.",
        ),
    ] = False
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Optimizer steps.", show_default=False)
    ] = None
    max_minutes: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Saves and stops after so long; the same command goes on.",
            show_default=False,
        ),
    ] = None

    def fields(self) -> dict[str, Any]:
        """Returns fields of TrainOptions. Raises InputError for an unknown method, or for
        --decoupled with another method.
        """
        from kernelwright.errors import InputError

        method = _method(self.method)
        if self.decoupled and method is not None and not method.exact:
            raise InputError(
                f"--decoupled goes with --method grpo: leave it out with --method {method}"
            )
        return {
            "method": method, "decoupled": self.decoupled, "mask_thoughts": self.mask_thoughts,
            "max_steps": self.max_steps, "max_minutes": self.max_minutes,
        }  # fmt: skip


SUBJECT_MODES = Modes({"--policy": ("policy",), "--base": ("base",)})
TRAIN_MODES = Modes(
    {
        "--from-trajectories": names_of(LogChoice),
        "--online": names_of(RolloutOptions, EngineOptions, HeldOutEvaluationOptions) | {"online"},
    }
)


@expand_groups
def train(
    context: typer.Context,
    log: LogChoice,
    model: ModelOptions,
    method: MethodOptions,
    reward: RewardOptions,
    trainer: TrainerOptions,
    distribution: DistributionOptions,
    rollouts: RolloutOptions,
    engine: EngineOptions,
    evaluation: HeldOutEvaluationOptions,
    plan: PlanOptions,
    online: Online = False,
    gpus: Gpus = None,
    out: Out = Path("trained"),
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Train the policy on the agent's log, or online.

    Shows the usable turns first; unusable ones are refused with the reason.

    After a stop the same command goes on. Exits with 0 done, 2 if you must change something, 3 for
    an alarm or a failure of this machine, 130 paused.
    """
    from kernelwright.errors import InputError

    if (log.from_trajectories is None) == (not online):
        raise InputError("give --from-trajectories DB or --online")
    TRAIN_MODES.refuse_unused(context, "--online" if online else "--from-trajectories")
    SUBJECT_MODES.refuse_unused(context, "--policy" if model.base is None else "--base")
    shared = {
        **model.fields(), **method.fields(), **reward.fields(), **trainer.fields(), **distribution.fields(),
        "output": out,
    }  # fmt: skip
    plan.check()
    source = (
        {**rollouts.fields(), **engine.fields(), **evaluation.fields()} if online else log.fields()
    )
    if plan.plan:
        _plan(plan, {**shared, **source}, gpus, as_json)
    elif online:
        _online({**shared, **source}, gpus, as_json)
    else:
        _from_log({**shared, **source}, log.dry_run, gpus, as_json)


def _plan(plan: PlanOptions, fields: dict[str, Any], gpus: int | None, as_json: bool) -> None:
    """Prints the capacity plan of a training from a log, or online."""
    from kernelwright.rl.training.online.options import OnlineOptions
    from kernelwright.rl.training.options import LogOptions
    from kernelwright.rl.training.subject import RL_LORA, path_of

    options: LogOptions | OnlineOptions
    rows = None
    if "db" in fields and "prompts" not in fields:
        options = LogOptions(**fields)
        rows = _turns(options)
    else:
        without_gpus = {name: value for name, value in fields.items() if name != "sampling_device"}
        options = OnlineOptions(**without_gpus)
    plan.show(options, path_of(options.policy), RL_LORA, gpus, as_json, rows)


def _turns(options: LogOptions) -> int:
    """Returns the number of judged turns within the filters of a log."""
    from kernelwright.rl.training.plan import refuse_empty
    from kernelwright.store.database import Store

    with Store.open(options.db, create=False, readonly=True) as store:
        return store.count(refuse_empty(store, options))


def _method(name: str | None) -> Any:
    from kernelwright.errors import InputError
    from kernelwright.rl.training.options import Method

    try:
        return None if name is None else Method(name)
    except ValueError:
        raise InputError(f"--method {name!r}: choose {', '.join(Method)}") from None


def _from_log(fields: dict[str, Any], dry_run: bool, gpus: int | None, as_json: bool) -> None:
    from kernelwright.rl.training.early_checks import check_log
    from kernelwright.rl.training.options import LogOptions
    from kernelwright.rl.training.sharding.launching import run_on_gpus

    options = LogOptions(**fields)
    check_log(options)
    run_on_gpus(gpus, options.device, sys.argv[1:])
    _trained_from_log(options, dry_run, as_json)


def _trained_from_log(options: LogOptions, dry_run: bool, as_json: bool) -> None:
    from kernelwright.rl.command_line.show.resuming import goes_on_later
    from kernelwright.rl.command_line.show.training import live_training, plan_view, trained_view
    from kernelwright.rl.training.from_log import train_from_log
    from kernelwright.rl.training.processes import leave_process_group

    with live_training(quiet=as_json, from_log=True) as shown, goes_on_later():

        def show(plan: Any) -> None:
            if as_json and dry_run:
                typer.echo(plan.model_dump_json(indent=2))
            elif not as_json:
                shown.print(plan_view(plan))

        trained = train_from_log(
            options, show=show, say=shown.say, watch=shown.watch, dry_run=dry_run
        )
    leave_process_group()
    if trained is not None and trained.first:
        typer.echo(trained.model_dump_json(indent=2) if as_json else trained_view(trained))


def _online(fields: dict[str, Any], gpus: int | None, as_json: bool) -> None:
    from kernelwright.rl.command_line.options.spreading import spread
    from kernelwright.rl.training.early_checks import check_problems
    from kernelwright.rl.training.online.options import OnlineOptions
    from kernelwright.rl.training.sharding.launching import processes_of, run_on_gpus

    options = OnlineOptions(**spread(fields, processes=processes_of(gpus)))
    check_problems(options)
    run_on_gpus(gpus, options.device, sys.argv[1:])
    _trained_online(options, as_json)


def _trained_online(options: OnlineOptions, as_json: bool) -> None:
    from kernelwright.rl.command_line.show.resuming import goes_on_later
    from kernelwright.rl.command_line.show.training import live_training, trained_view
    from kernelwright.rl.training.online.training import train_online
    from kernelwright.rl.training.processes import leave_process_group

    with live_training(quiet=as_json) as shown, goes_on_later():
        trained = train_online(options, say=shown.say, watch=shown.watch)
    leave_process_group()
    if trained.first:
        typer.echo(trained.model_dump_json(indent=2) if as_json else trained_view(trained))

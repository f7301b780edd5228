"""`rl loop`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.rl.training.online.rollout_arguments import (
    Against,
    Database,
    Group,
    Judge,
    Lag,
    OwnWork,
    Problems,
    Prompts,
    ReplyTokens,
    Turns,
    Workers,
    rollout_fields,
)
from kernelwright.rl.training.training_arguments import (
    AsJson,
    BaselineName,
    Debug,
    Device,
    Gamma,
    Output,
    PolicyName,
    Reward,
    Seed,
    Settings,
    StorageName,
    training_fields,
)

if TYPE_CHECKING:
    from kernelwright.rl.training.online.options import LoopOptions

HeldOut = Annotated[
    list[str] | None,
    typer.Option("--held-out", help="What decides a promotion.", show_default="synth's three held-out splits"),
]
Count = Annotated[int, typer.Option("--held-out-count", min=1, help="Problems of each held-out split.")]
Samples = Annotated[int, typer.Option(min=1, help="Drafts of each held-out problem.")]
Cycles = Annotated[int, typer.Option(min=1, help="How often; more continue a loop that ended.")]
Steps = Annotated[int, typer.Option(min=1, help="Optimizer steps a cycle.")]
How = Annotated[str, typer.Option(help="online, or log: collected once a cycle and trained from what was logged.")]


def loop(
    policy: PolicyName = "embedded", output: Output = Path("loop"), problems: Problems = None, against: Against = None,
    held_out: HeldOut = None,
    held_out_count: Count = 64, samples: Samples = 4, cycles: Cycles = 3, steps: Steps = 20, how: How = "online",
    db: Database = None,
    prompts: Prompts = 32, group: Group = 12, turns: Turns = 2, workers: Workers = None, judge: Judge = "interpreted",
    own_work: OwnWork = "strict", lag: Lag = 1,
    reply_tokens: ReplyTokens = None, reward: Reward = "auto", gamma: Gamma = 0.4,
    baseline: BaselineName = "leave-one-out",
    settings: Settings = None, device: Device = "auto", seed: Seed = 0, storage: StorageName = "fp32",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Collect, train, measure on held-out problems, and promote only what is better; cycle after cycle.

    The same command goes on where it was stopped.
    """
    from kernelwright.errors import InputError
    from kernelwright.rl.training.early import look_at_problems
    from kernelwright.rl.training.online.options import LoopOptions

    if how not in ("online", "log"):
        raise InputError(f"--how {how!r}: choose online or log")
    shared = training_fields(
        policy, None, output, reward, gamma, baseline, None, None, False, settings, device, seed, storage
    )
    own = rollout_fields(problems, against, db, prompts, group, turns, workers, judge, own_work, lag, reply_tokens)
    asked: dict[str, Any] = {
        **shared, **own, "held_out": tuple(held_out or ()), "held_out_count": held_out_count, "samples": samples,
        "cycles": cycles, "steps": steps,
        "how": how,
    }  # fmt: skip
    options = LoopOptions(**asked)
    look_at_problems(options)
    _looped(options, as_json)


def _looped(options: LoopOptions, as_json: bool) -> None:
    from kernelwright.rl.command_line.show.looping import cycles_view
    from kernelwright.rl.command_line.show.training import live_training
    from kernelwright.rl.training.online.looping import run_loop

    with live_training(quiet=as_json) as (watch, say):
        done = run_loop(options, say=say, watch=watch)
    if as_json:
        import json

        typer.echo(json.dumps([cycle.model_dump(mode="json") for cycle in done], indent=2))
    else:
        from kernelwright.agent.viewing.show.progress import console

        console().print(cycles_view(done, options.output))

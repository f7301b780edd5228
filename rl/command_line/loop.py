"""Defines `rl loop`, which repeats training and measurement, and keeps the better policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from kernelwright.agent.command_line.modes import Modes
from kernelwright.agent.command_line.options import expand_groups
from kernelwright.rl.command_line.options.rollouts import HeldOutOptions, RolloutOptions
from kernelwright.rl.command_line.options.shared import AsJson, Debug
from kernelwright.rl.command_line.options.training import (
    DistributionOptions,
    PolicyName,
    RewardOptions,
    TrainerOptions,
)

if TYPE_CHECKING:
    from kernelwright.rl.training.online.options import LoopOptions

Out = Annotated[
    Path,
    typer.Option(
        "--out", help="The folder for the policies; checkpoints lie beside them in OUT.training."
    ),
]


@dataclass(frozen=True)
class CycleOptions:
    """Options for the number of cycles, and their training and measuring."""

    PANEL: ClassVar[str] = "Cycles"
    cycles: Annotated[
        int, typer.Option(min=1, help="Cycles in all; more than before continue a loop that ended.")
    ] = 3
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps in each cycle.")] = 20
    how: Annotated[
        str,
        typer.Option(
            help="online, or log: collected once a cycle and trained from what was logged."
        ),
    ] = "online"

    def fields(self) -> dict[str, Any]:
        """Returns fields of LoopOptions. Raises InputError for an invalid value."""
        from kernelwright.errors import InputError

        if self.how not in ("online", "log"):
            raise InputError(f"--how {self.how!r}: choose online or log")
        return {"cycles": self.cycles, "steps": self.steps, "how": self.how}


LOOP_MODES = Modes({"--how online": ("lag",), "--how log": ()})


@expand_groups
def loop(
    context: typer.Context,
    cycle: CycleOptions,
    held_out: HeldOutOptions,
    rollouts: RolloutOptions,
    reward: RewardOptions,
    trainer: TrainerOptions,
    distribution: DistributionOptions,
    policy: PolicyName = "embedded",
    out: Out = Path("loop"),
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Collect, train, measure on held-out problems, and promote only a better policy; cycle after
    cycle.

    Writes loop.jsonl, loop.png and report.html after each cycle. After a stop the same command goes
    on.
    """
    from kernelwright.rl.training.early_checks import check_loop
    from kernelwright.rl.training.online.options import LoopOptions

    groups = (cycle, held_out, rollouts, reward, trainer, distribution)
    fields: dict[str, Any] = {"policy": policy, "output": out}
    for group in groups:
        fields |= group.fields()
    LOOP_MODES.refuse_unused(context, f"--how {cycle.how}")
    options = LoopOptions(**fields)
    check_loop(options)
    _looped(options, as_json)


def _looped(options: LoopOptions, as_json: bool) -> None:
    from kernelwright.rl.command_line.show.looping import cycles_view
    from kernelwright.rl.command_line.show.resuming import goes_on_later
    from kernelwright.rl.command_line.show.training import live_training
    from kernelwright.rl.training.online.looping import run_loop

    with live_training(quiet=as_json) as shown, goes_on_later():
        done = run_loop(options, say=shown.say, watch=shown.watch)
    if as_json:
        import json

        typer.echo(json.dumps([cycle.model_dump(mode="json") for cycle in done], indent=2))
    else:
        from kernelwright.agent.viewing.show.progress import console

        console().print(cycles_view(done, options.output))

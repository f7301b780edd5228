"""Options shared by `rl train` and `rl loop`: the reward, the trainer and the written model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from kernelwright.rl.command_line.options.shared import Settings, StorageName

PolicyName = Annotated[
    str,
    typer.Option(
        "--policy", help="The policy that is trained: embedded, transformers:DIR or vllm:DIR."
    ),
]


@dataclass(frozen=True)
class RewardOptions:
    """Options for the reward formula, and for credit assignment."""

    PANEL: ClassVar[str] = "Reward and credit"
    reward: Annotated[
        str,
        typer.Option(
            help="default, execution, autotriton, kevin, drkernel, a .json file, or auto."
        ),
    ] = "auto"
    gamma: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Discount of what later turns of a lineage earn."),
    ] = 0.4
    baseline: Annotated[
        str, typer.Option("--baseline", help="leave-one-out or mean, inside (problem, turn).")
    ] = "leave-one-out"

    def fields(self) -> dict[str, Any]:
        """Returns fields of TrainOptions. Raises InputError for an unknown baseline or formula."""
        from kernelwright.agent.rewards.formula import find_formula
        from kernelwright.errors import InputError
        from kernelwright.rl.credit.turn_credit import AdvantageBaseline

        if self.baseline not in list(AdvantageBaseline):
            raise InputError(f"--baseline {self.baseline!r}: choose {', '.join(AdvantageBaseline)}")
        if self.reward != "auto":
            find_formula(self.reward)
        return {
            "reward": self.reward,
            "gamma": self.gamma,
            "baseline": AdvantageBaseline(self.baseline),
        }


@dataclass(frozen=True)
class DistributionOptions:
    """Options for the sampling distribution of turns, which is the trained distribution."""

    PANEL: ClassVar[str] = "Sampling"
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Temperature of the sampling and of the loss; with a log, only turns sampled at it are used.",
            show_default="1; with a log, the most frequent one in it",
        ),
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", min=0.0, max=1.0, help="Only 1 is possible: log-probs are exact for the whole "
        "distribution alone.", show_default="1"),
    ] = None  # fmt: skip

    def fields(self) -> dict[str, Any]:
        """Returns the fields of TrainOptions set by the user. Raises InputError for a truncated
        distribution.
        """
        from kernelwright.errors import InputError

        if self.top_p not in (None, 1.0):
            raise InputError(
                f"--top-p {self.top_p:g}: the log-probs of a cut-off distribution are not exact, and training needs "
                "exact ones: leave it out (--temperature changes the distribution)"
            )
        return {} if self.temperature is None else {"temperature": self.temperature}


@dataclass(frozen=True)
class TrainerOptions:
    """Options for trl's trainer, and for the written weights."""

    PANEL: ClassVar[str] = "Trainer"
    settings: Settings = None
    device: Annotated[
        str, typer.Option(help="Where the policy is trained: auto, cpu or cuda:N.")
    ] = "auto"
    seed: Annotated[int, typer.Option(min=0, help="Seed of the problems and of the sampling.")] = 0
    storage: StorageName = "fp32"
    precision: Annotated[
        str,
        typer.Option(help="How whole weights are held while they are trained: fp32; bf16 with fp32 masters in host "
        "memory; auto: the first that fits."),
    ] = "auto"  # fmt: skip

    def fields(self) -> dict[str, Any]:
        """Returns fields of TrainOptions. Raises InputError for an invalid value."""
        from kernelwright.agent.runtime.arguments import choose_device
        from kernelwright.rl.training.sft.presets import read_settings
        from kernelwright.rl.training.trl_settings import FIELD_OPTIONS, refuse_decided

        settings = read_settings(self.settings or [])
        refuse_decided(settings, FIELD_OPTIONS)
        return {
            "settings": settings, "device": choose_device(self.device), "seed": self.seed,
            "storage": parse_storage(self.storage), "precision": _parse_precision(self.precision),
        }  # fmt: skip


def parse_storage(name: str) -> Any:
    """Returns the number format of a written policy. Raises InputError."""
    from kernelwright.errors import InputError
    from kernelwright.rl.training.options import Storage

    if name not in list(Storage):
        raise InputError(f"--storage {name!r}: choose {', '.join(Storage)}")
    return Storage(name)


def _parse_precision(name: str) -> Any:
    from kernelwright.errors import InputError
    from kernelwright.rl.training.options import Precision

    if name not in list(Precision):
        raise InputError(f"--precision {name!r}: choose {', '.join(Precision)}")
    return Precision(name)

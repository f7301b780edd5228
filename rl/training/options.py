"""The options of `rl train` as one value. Two commands with equal options are the same training,
so the second continues the first.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import Field

from kernelwright.policies.base import Value
from kernelwright.rl.credit.turn_credit import GAMMA, AdvantageBaseline
from kernelwright.rl.training.safety.alarms import AlarmBounds


class Method(StrEnum):
    """How a policy is trained from a log."""

    GRPO = "grpo"
    """Clipped policy gradient with the stored log-probs as the old policy: for fresh, exact logs.
    """
    RFT = "rft"
    """Fine-tuning on the correct turns: for old logs, and for logs without log-probs."""
    DPO = "dpo"
    """Direct preference optimization on pairs of a good and a bad reply to the same prompt."""
    KTO = "kto"
    """Kahneman-Tversky optimization on good and bad replies without pairs."""

    @property
    def exact(self) -> bool:
        """Whether the method needs the log-probs of the sampling policy."""
        return self is Method.GRPO


class Storage(StrEnum):
    """Dtype of the weights of a written policy."""

    FP32 = "fp32"
    BF16 = "bf16"


class Precision(StrEnum):
    """How whole weights are held during training."""

    AUTO = "auto"
    """fp32 if the device's memory suffices, otherwise bf16."""
    FP32 = "fp32"
    BF16 = "bf16"
    """bf16 on the device, with fp32 masters in host memory."""


CHANGEABLE_FIELDS = frozenset(
    {
        "max_minutes",
        "storage",
        "precision",
        "output",
        "max_steps",
        "workers",
        "places",
        "db",
        "force",
        "device",
        "engine",
        "sampling_gpu",
        "judge_gpus",
        "ray",
        "rollout_actors",
    }
)
"""Fields that may differ between two sittings of the same training."""


class TrainOptions(Value):
    """The options shared by all methods of `rl train`."""

    policy: str = "embedded"
    """The policy as named by `--policy`, or the base model of `--base`."""
    adapter: str | None = None
    output: Path
    method: Method | None = None
    """Training method; None chooses by the state of the log."""
    reward: str = "auto"
    gamma: float = Field(default=GAMMA, ge=0.0, le=1.0)
    baseline: AdvantageBaseline = AdvantageBaseline.LEAVE_ONE_OUT
    max_steps: int | None = Field(default=None, ge=1)
    max_minutes: float | None = Field(default=None, gt=0.0)
    lora: bool = False
    decoupled: bool = False
    """Whether the trust region follows the current policy, with trl's importance-sampling
    correction.
    """
    mask_thoughts: bool = False
    """Whether the thoughts of replies are left out of the loss."""
    settings: dict[str, Any] = {}
    """Fields of the method's trl config."""
    device: str = "cpu"
    seed: int = 0
    storage: Storage = Storage.FP32
    precision: Precision = Precision.AUTO
    limits: AlarmBounds = AlarmBounds()

    @property
    def work(self) -> Path:
        """The folder beside the output with checkpoints and curves, until the policy is complete."""
        return self.output.with_name(f"{self.output.name}.training")

    def identity_of(self, facts: dict[str, Any]) -> str:
        """Returns a hash of all options and `facts` that a checkpoint depends on. Time limits and
        storage may change.
        """
        # Changing one of the excluded fields continues the same training.
        text = self.model_dump_json(exclude=set(CHANGEABLE_FIELDS))
        return hashlib.sha256(f"{text}{sorted(facts.items())}".encode()).hexdigest()[:16]


class LogOptions(TrainOptions):
    """Options of a training from stored trajectories alone."""

    db: str
    filters: tuple[str, ...] = ()
    max_age: int | None = None
    """Largest age in revisions of a turn's policy; older turns are refused."""
    max_length: int | None = None
    """Largest number of tokens of prompt and reply together; longer turns are refused."""
    epochs: float = Field(default=2.0, gt=0.0)
    """Passes over the log, unless `max_steps` is set."""
    temperature: float | None = None
    """Sampling temperature of the selected turns; None selects the most frequent temperature of
    the log.
    """
    force: bool = False
    """Whether to train on a worn-out log anyway."""

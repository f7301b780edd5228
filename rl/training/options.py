"""What `rl train` is asked to do, as one value: two commands with the same value are the same training, so the
second goes on with the first.
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
    """Clipped policy gradient with the stored log-probs as the old policy: for fresh, exact logs."""
    RFT = "rft"
    """Fine-tuning on the correct turns: for old logs, and for logs without log-probs."""
    DPO = "dpo"
    """Pairs of a good and a bad reply to one prompt."""
    KTO = "kto"
    """Good and bad replies, each by itself."""

    @property
    def exact(self) -> bool:
        """Whether it needs the log-probs of the policy that sampled."""
        return self is Method.GRPO


class Storage(StrEnum):
    """The dtype in which the weights of a trained policy are written."""

    FP32 = "fp32"
    BF16 = "bf16"


class Precision(StrEnum):
    """How whole weights are held while they are trained."""

    AUTO = "auto"
    """fp32 where that fits the device's memory, and otherwise bf16."""
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
"""Fields that two sittings of one training may differ in."""


class TrainOptions(Value):
    """The options of every kind of training here."""

    policy: str = "embedded"
    """The policy as `--policy` names it, or the base of `--base`."""
    adapter: str | None = None
    output: Path
    method: Method | None = None
    """None: the log decides."""
    reward: str = "auto"
    gamma: float = Field(default=GAMMA, ge=0.0, le=1.0)
    baseline: AdvantageBaseline = AdvantageBaseline.LEAVE_ONE_OUT
    max_steps: int | None = Field(default=None, ge=1)
    max_minutes: float | None = Field(default=None, gt=0.0)
    lora: bool = False
    decoupled: bool = False
    """trl's importance-sampling correction round a trust region that moves with the policy."""
    settings: dict[str, Any] = {}
    """Fields of trl's config of that method."""
    device: str = "cpu"
    seed: int = 0
    storage: Storage = Storage.FP32
    precision: Precision = Precision.AUTO
    limits: AlarmBounds = AlarmBounds()

    @property
    def work(self) -> Path:
        """The folder beside the output that holds checkpoints and curves until the policy is whole."""
        return self.output.with_name(f"{self.output.name}.training")

    def identity_of(self, more: dict[str, Any]) -> str:
        """What a checkpoint is good for; how long it may take and how it is stored can change."""
        text = self.model_dump_json(exclude=set(CHANGEABLE_FIELDS))
        return hashlib.sha256(f"{text}{sorted(more.items())}".encode()).hexdigest()[:16]


class LogOptions(TrainOptions):
    """Training from stored trajectories alone."""

    db: str
    filters: tuple[str, ...] = ()
    max_age: int | None = None
    """Turns of policies further back, in revisions, are refused."""
    max_length: int | None = None
    """Turns with more tokens, prompt and reply together, are refused."""
    epochs: float = Field(default=2.0, gt=0.0)
    """Passes over the log, where `max_steps` does not say otherwise."""
    temperature: float | None = None
    """Sampling temperature of the turns that are used; None: the most frequent one of the log."""
    force: bool = False
    """Trains on a log that is worn out all the same."""

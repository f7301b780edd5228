"""The options of `rl sft` as one value: two commands with equal values are the same training, so the second continues
the first.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelwright.policies.base import Value
from kernelwright.rl.training.sft.encoding import RowSelection
from kernelwright.rl.training.sft.presets import PresetName


class WrittenWeights(StrEnum):
    """The number format in which a whole model's weights are written."""

    BF16 = "bf16"
    FP32 = "fp32"
    INT8 = "int8"


class SftOptions(Value):
    """Everything that a fine-tuning is asked for."""

    base: str
    data: Path
    output: Path
    preset: PresetName = PresetName.SCRATCH
    tokenizer: str | None = None
    adapter: str | None = None
    """Gone on with, instead of a new one."""
    device: str = "cpu"
    choice: RowSelection = RowSelection()
    settings: dict[str, Any] = {}
    """Fields of SFTConfig over the preset's."""
    drawn: int = 0
    """Drafts from the generator besides, which no tool has judged."""
    against: tuple[str, ...] = ()
    """Suites that no drawn row may be of, besides the benchmarks that are known."""
    drawn_seed: int = 1_000_003
    """Another than a corpus is generated with, so that they are other programs."""
    workers: int = 2
    vocabulary: int = 4096
    """Words of the tokenizer that is made where a new model is given none."""
    batch_tokens: int | None = None
    """Tokens of a batch of the scratch preset; None: 65,536 on a GPU, 8,192 on a CPU."""
    compile: bool | None = None
    """torch.compile of the scratch preset's step; None: on a GPU."""
    max_minutes: float | None = None
    storage: WrittenWeights = WrittenWeights.BF16
    seed: int = 0

    @property
    def work(self) -> Path:
        """The folder beside the output that holds checkpoints and the tokenizer until the model is whole."""
        return self.output.with_name(f"{self.output.name}.training")

    @property
    def identity(self) -> str:
        """Returns the options that a checkpoint depends on. The time limit and the format of the written weights may
        change.
        """
        text = self.model_dump_json(exclude={"max_minutes", "storage", "output", "workers"})
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def budget(self) -> int:
        """Padded tokens of one batch: those asked for, else 65,536 on a GPU and 8,192 on a CPU."""
        return self.batch_tokens or (65_536 if self.device.startswith("cuda") else 8_192)

    @property
    def compiled(self) -> bool:
        """Whether the model goes through torch.compile: as asked for, else on a GPU only."""
        return self.device.startswith("cuda") if self.compile is None else self.compile


class FineTuningResult(Value):
    """The result of a fine-tuning."""

    output: str
    base: str
    parameters: int
    trained: int
    """Number of parameters that are trained."""
    rows: dict[str, int]
    steps: int
    epochs: float
    loss: float
    """Mean over the last logged steps, nats a token."""
    held_loss: float | None
    """Loss on the rows that were kept back."""
    tokens: int
    """Trained on, padding not counted."""
    tokens_a_second: float
    seconds: float
    padding: float | None = None
    """Share of the computed tokens that is padding."""
    gpu_memory: int | None = None
    """Peak GPU memory in bytes."""
    resumed_at: int = 0
    losses: tuple[tuple[int, float], ...] = ()
    held_losses: tuple[tuple[int, float], ...] = ()
    config: dict[str, Any] = {}
    """Fields that differ from SFTConfig's own defaults."""

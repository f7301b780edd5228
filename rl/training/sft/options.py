"""The options of `rl sft` as one value. Two commands with equal options are the same training, so
the second continues the first.
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
    """Number format of a whole model's written weights."""

    BF16 = "bf16"
    FP32 = "fp32"
    INT8 = "int8"


class SftOptions(Value):
    """The options of a fine-tuning."""

    base: str
    data: Path
    output: Path
    preset: PresetName = PresetName.SCRATCH
    tokenizer: str | None = None
    adapter: str | None = None
    """An adapter to continue, instead of a new adapter."""
    device: str = "cpu"
    thinking: bool | None = None
    """Whether the model's chat template lets it think; None leaves the template as it is."""
    choice: RowSelection = RowSelection()
    settings: dict[str, Any] = {}
    """Fields of SFTConfig over the preset's."""
    drawn: int = 0
    """Number of additional drafts from the generator, not judged by the tools."""
    against: tuple[str, ...] = ()
    """Suites excluded from drawn rows, in addition to the known benchmarks."""
    drawn_seed: int = 1_000_003
    """Differs from the seeds of corpora, so the programs differ."""
    workers: int = 2
    vocabulary: int = 4096
    """Number of tokens of a tokenizer trained for a new model."""
    batch_tokens: int | None = None
    """Tokens of a batch of the scratch preset; None: 65,536 on a GPU, 8,192 on a CPU."""
    compile: bool | None = None
    """Whether to use torch.compile for the scratch preset's step; None: on a GPU."""
    max_minutes: float | None = None
    storage: WrittenWeights = WrittenWeights.BF16
    seed: int = 0

    @property
    def work(self) -> Path:
        """The folder beside the output with checkpoints and tokenizer, until the model is
        complete.
        """
        return self.output.with_name(f"{self.output.name}.training")

    @property
    def identity(self) -> str:
        """Returns a hash of the options that a checkpoint depends on. The time limit and the
        written format may change.
        """
        text = self.model_dump_json(exclude={"max_minutes", "storage", "output", "workers"})
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def budget(self) -> int:
        """Padded tokens of a batch: as requested, else 65,536 on a GPU and 8,192 on a CPU."""
        return self.batch_tokens or (65_536 if self.device.startswith("cuda") else 8_192)

    @property
    def compiled(self) -> bool:
        """Whether the model is compiled by torch.compile: as requested, else on a GPU only."""
        return self.device.startswith("cuda") if self.compile is None else self.compile


class FineTuningResult(Value):
    """The result of a fine-tuning."""

    output: str
    base: str
    parameters: int
    trained: int
    """Number of trained parameters."""
    rows: dict[str, int]
    steps: int
    epochs: float
    loss: float
    """Mean over the last logged steps, nats a token."""
    held_loss: float | None
    """Loss on the reserved rows."""
    tokens: int
    """Number of trained tokens, without padding."""
    tokens_a_second: float
    seconds: float
    padding: float | None = None
    """Share of padding among the computed tokens."""
    gpu_memory: int | None = None
    """Peak of the tensors of the first process on its GPU, in bytes."""
    step_seconds: tuple[float, ...] = ()
    """Seconds of each optimizer step of the last sitting."""
    resumed_at: int = 0
    losses: tuple[tuple[int, float], ...] = ()
    held_losses: tuple[tuple[int, float], ...] = ()
    config: dict[str, Any] = {}
    """Fields that differ from SFTConfig's own defaults."""
    first: bool = True
    """Whether the reporting process is the writing process."""

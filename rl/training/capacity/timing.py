"""Seconds of a step by phase.

Training and prefill are bound by arithmetic, decoding by memory: each decoded token reads all
weights and the KV cache of the rows in flight. The reached shares of the published peaks are
constants here; `bench/results/rl.md` has the runs behind them.
"""

from __future__ import annotations

from kernelwright.policies.base import Value
from kernelwright.rl.training.capacity.memory import StepShape, TrainedPart
from kernelwright.rl.training.capacity.model_shape import BF16_BYTES, ModelShape

TRAINING_SHARE = 0.35
"""Share of the bf16 peak reached by a training step."""
PREFILL_SHARE = 0.5
"""Share of the peak rate reached in prefill."""
DECODING_SHARE = 0.5
"""Share of the memory's peak rate reached by decoding."""
OPTIMIZER_BYTES = 28
"""Bytes read and written for each trained parameter by AdamW."""
FOLDER_RATE = 1.5e9
"""Bytes a second of new weights through a folder."""
MIN_TOKEN_SECONDS = 0.008
"""Seconds of a decoding step, however small the model."""
LAYER_SECONDS = 0.009
"""Least seconds of a decoder layer for each part of a step, forward and backward: the host starts
its kernels. 0.9 s for 4 parts of 28 layers (H200, 0.5 B, 2026-11-28).
"""
SHARDED_LAYER_SECONDS = 0.014
"""The same with shards: a layer is gathered twice and its gradients are reduced. 0.8 s for 2 parts
of 28 layers (two H200, 0.5 B, 2026-11-28).
"""


class GpuRates(Value):
    """Memory and published peaks of a GPU."""

    name: str
    bytes: int
    bf16_rate: float
    """Dense operations a second."""
    memory_rate: float
    """Bytes a second."""


class StepSeconds(Value):
    """Seconds of a step by phase."""

    generation: float = 0.0
    judging: float = 0.0
    transfer: float = 0.0
    training: float
    lag: int = 0
    """Rounds sampled during a training step."""

    @property
    def step(self) -> float:
        """Seconds from step to step: with a lag, rollouts and training run side by side."""
        rollouts = self.generation + self.judging
        if self.lag:
            return max(rollouts, self.training) + self.transfer
        return rollouts + self.training + self.transfer


def training_seconds(
    shape: ModelShape, step: StepShape, part: TrainedPart, gpus: int, gpu: GpuRates
) -> float:
    """Returns the seconds of the optimizer step.

    Operations a token: 2 P forward, as much again where activations are computed twice, 2 P for
    the gradients of activations, and 2 P for those of weights.
    """
    passes = 2 + 2 + (2 if part.checkpointing else 0) + (0 if part.lora else 2)
    matrix = passes * shape.parameters
    # Attention: 2 products of row_tokens^2 / 2 pairs, forward; twice that backward.
    attention = 2 * passes * shape.layers * shape.heads * shape.head_width * step.row_tokens // 2
    arithmetic = step.tokens * (matrix + attention) / (gpus * gpu.bf16_rate * TRAINING_SHARE)
    layer = LAYER_SECONDS if gpus == 1 else SHARDED_LAYER_SECONDS
    # A small model waits for the host, which launches kernels layer by layer.
    launches = step.parts * shape.layers * layer
    trained = shape.lora_parameters if part.lora else shape.parameters
    return max(arithmetic, launches) + OPTIMIZER_BYTES * trained / (
        gpus * gpu.memory_rate * DECODING_SHARE
    )


def generation_seconds(
    shape: ModelShape,
    step: StepShape,
    engines: int,
    tensor_parallel: int,
    at_once: int,
    gpu: GpuRates,
) -> float:
    """Returns the seconds of sampling all rows of a step by `engines` engines, each of
    `tensor_parallel` GPUs with `at_once` rows in flight.
    """
    rows = -(-step.rows // engines)
    waves = -(-rows // max(1, at_once))
    in_flight = min(rows, at_once)
    rate = gpu.memory_rate * tensor_parallel * DECODING_SHARE
    cached = in_flight * shape.kv_bytes * (step.prompt_tokens + step.reply_tokens / 2)
    token_seconds = max(MIN_TOKEN_SECONDS, (BF16_BYTES * shape.parameters + cached) / rate)
    prefill = 2 * shape.parameters * rows * step.prompt_tokens
    prefill_seconds = prefill / (gpu.bf16_rate * tensor_parallel * PREFILL_SHARE)
    return waves * step.reply_tokens * token_seconds + prefill_seconds

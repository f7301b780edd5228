"""Memory of a GPU in a training and in sampling, in bytes.

Sharded over N GPUs (FSDP2), fp32 weights, gradients and AdamW's moments take 4 + 4 + 8 bytes a
parameter over N. While a decoder layer computes, its weights are whole in bf16, and so are those of
the layer fetched ahead; in its backward pass its gradients are whole in bf16 and in fp32.
"""

from __future__ import annotations

from kernelwright.policies.base import Value
from kernelwright.rl.training.capacity.model_shape import BF16_BYTES, ModelShape

FP32_BYTES = 4
MOMENT_BYTES = 8
"""AdamW's two moments in fp32."""
REDUCED_BYTES = BF16_BYTES + FP32_BYTES
"""A whole gradient in bf16, and in fp32 for its reduction."""
HEAD_TILE = 4096 * 8192
"""Elements of the largest tile of logits in trl's fused head."""
MASK_BYTES = 3
"""Bytes of a pair of columns: the mask over pairs, and its bf16 form in attention."""
CONTEXT_BYTES = 1_500_000_000
"""CUDA's context, NCCL's buffers and cuBLAS's workspaces."""
FREE_SHARE = 0.05
"""Share of the memory lost to fragments."""
ENGINE_SHARE = 0.9
"""Share of a GPU's memory taken by vLLM for weights and KV cache."""


class StepShape(Value):
    """The rows of a step."""

    rows: int
    """Rows of an optimizer step, over all processes."""
    parts: int
    """Sequential parts of a step in each process."""
    prompt_tokens: int
    reply_tokens: int
    masked: bool = True
    """Whether rows are padded on the left, with a mask over pairs of columns (GRPO)."""

    @property
    def row_tokens(self) -> int:
        """Tokens of a row, prompt and reply."""
        return self.prompt_tokens + self.reply_tokens

    @property
    def tokens(self) -> int:
        """Tokens of a step, over all processes."""
        return self.rows * self.row_tokens

    def part_rows(self, gpus: int) -> int:
        """Returns the rows of a part on each of `gpus` trainers."""
        return max(1, -(-self.rows // (gpus * self.parts)))


class TrainedPart(Value):
    """The trained weights: all of them or an adapter, with or without checkpointing."""

    lora: bool = False
    checkpointing: bool = True
    """Whether activations are computed again in the backward pass."""


class TrainerMemory(Value):
    """Bytes of a trainer's GPU."""

    weights: int
    gradients: int
    optimizer: int
    gathered: int
    """Whole weights and gradients of the computing layer."""
    activations: int
    logits: int

    @property
    def tensors(self) -> int:
        """Peak of all tensors, as `torch.cuda.max_memory_allocated` counts it."""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.gathered
            + self.activations
            + self.logits
        )


def trainer_memory(
    shape: ModelShape, step: StepShape, part: TrainedPart, gpus: int
) -> TrainerMemory:
    """Returns the memory of each of `gpus` training GPUs."""
    trained = shape.lora_parameters if part.lora else shape.parameters
    weights = FP32_BYTES * trained + (BF16_BYTES * shape.parameters if part.lora else 0)
    return TrainerMemory(
        weights=weights // gpus,
        gradients=FP32_BYTES * trained // gpus,
        optimizer=MOMENT_BYTES * trained // gpus,
        gathered=_gathered(shape, part, gpus),
        activations=_activations(shape, step, part, gpus),
        logits=BF16_BYTES * HEAD_TILE,
    )


def _gathered(shape: ModelShape, part: TrainedPart, gpus: int) -> int:
    """Returns the bytes of whole weights and gradients beside the shards."""
    if gpus == 1:
        # Autocast keeps a bf16 copy of each fp32 weight through the forward pass.
        return 0 if part.lora else BF16_BYTES * shape.parameters
    layers = 2 * shape.layer_parameters
    if part.lora:
        return BF16_BYTES * (layers + shape.root_parameters)
    # The gradients of embeddings and head are whole at the end of the backward pass.
    return BF16_BYTES * layers + (BF16_BYTES + REDUCED_BYTES) * shape.root_parameters


def _activations(shape: ModelShape, step: StepShape, part: TrainedPart, gpus: int) -> int:
    rows = step.part_rows(gpus)
    tokens = rows * step.row_tokens
    mask = MASK_BYTES * rows * step.row_tokens**2 if step.masked else 0
    if not part.checkpointing:
        return tokens * shape.layer_bytes * shape.layers + mask
    # Each layer keeps its input; the computing layer has all activations, and their gradients.
    inputs = BF16_BYTES * tokens * shape.hidden * shape.layers
    return inputs + 2 * tokens * shape.layer_bytes + mask


def fits(memory: TrainerMemory, gpu_bytes: int) -> bool:
    """Returns whether a trainer's tensors fit beside CUDA's own memory and lost fragments."""
    return memory.tensors + CONTEXT_BYTES <= (1.0 - FREE_SHARE) * gpu_bytes


class RolloutMemory(Value):
    """Bytes of a sampling GPU."""

    weights: int
    kv_cache: int
    """Bytes left for the KV cache; negative if the weights alone do not fit."""
    rows_at_once: int
    """Rows of full length in the cache, on all GPUs of an engine."""


def rollout_memory(
    shape: ModelShape, step: StepShape, gpu_bytes: int, tensor_parallel: int
) -> RolloutMemory:
    """Returns the memory of each GPU of an engine of `tensor_parallel` GPUs."""
    weights = BF16_BYTES * shape.parameters // tensor_parallel
    kv_cache = int(ENGINE_SHARE * gpu_bytes) - weights - CONTEXT_BYTES
    row_bytes = shape.kv_bytes * step.row_tokens
    return RolloutMemory(
        weights=weights,
        kv_cache=kv_cache,
        rows_at_once=max(0, kv_cache * tensor_parallel // max(1, row_bytes)),
    )

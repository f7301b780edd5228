"""Gathers sharded weights: to the first process for a file, or to all for their sampling policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.rl.training.processes import is_sharded

if TYPE_CHECKING:
    import torch


def gather_to_first(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns the trained weights by name: an adapter's alone, or all of a model.

    All processes must call this. Sharded weights are complete in the first process alone, in host
    memory.
    """
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    if not is_sharded():
        return model.state_dict()
    options = StateDictOptions(
        full_state_dict=True, cpu_offload=True, ignore_frozen_params=hasattr(model, "peft_config")
    )
    state = get_model_state_dict(model, options=options)
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def whole_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor gathered from its shards; a tensor without shards as it is."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

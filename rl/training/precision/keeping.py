"""Attaches fp32 masters to a trainer of transformers, and reads them when the policy is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernelwright.rl.training.processes import is_sharded
from kernelwright.rl.training.sharding.gathering import gather_to_first

if TYPE_CHECKING:
    import torch
    from transformers import Trainer


def keep_masters(
    trainer: Trainer, masters: Mapping[torch.nn.Parameter, torch.Tensor] | None
) -> None:
    """Makes the trainer's optimizer, chosen by its settings, step fp32 masters. Raises
    InputError.
    """
    from kernelwright.rl.training.precision.master_weights import MasterWeights

    if masters is not None:
        trainer.optimizer = MasterWeights(trainer.create_optimizer(), masters)


def trained_masters(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Returns the fp32 masters by weight name; empty if the weights themselves were trained."""
    from kernelwright.rl.training.precision.master_weights import MasterWeights

    optimizer = trainer.optimizer
    if not isinstance(optimizer, MasterWeights):
        optimizer = getattr(optimizer, "optimizer", None)  # accelerate wraps it
    if not isinstance(optimizer, MasterWeights):
        return {}
    return optimizer.named(trainer.accelerator.unwrap_model(trainer.model))


def gather_weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Returns the trained weights by name, complete in the first process. All processes must call
    this.
    """
    if is_sharded():
        return gather_to_first(trainer.accelerator.unwrap_model(trainer.model))
    return trainer.accelerator.get_state_dict(trainer.model) | trained_masters(trainer)

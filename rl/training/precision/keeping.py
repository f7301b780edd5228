"""Gives a trainer of transformers its fp32 masters, and takes them when the policy is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def keep_masters(trainer: Any, masters: Mapping[torch.nn.Parameter, torch.Tensor] | None) -> None:
    """Has the trainer's optimizer, which its settings name, step fp32 masters. Raises InputError."""
    from kernelwright.rl.training.precision.master_weights import MasterWeights

    if masters is not None:
        trainer.optimizer = MasterWeights(trainer.create_optimizer(), masters)


def trained_masters(trainer: Any) -> dict[str, torch.Tensor]:
    """Returns the fp32 masters by the names of the weights; empty where the weights themselves were trained."""
    from kernelwright.rl.training.precision.master_weights import MasterWeights

    optimizer = trainer.optimizer
    if not isinstance(optimizer, MasterWeights):
        optimizer = getattr(optimizer, "optimizer", None)  # accelerate wraps it
    if not isinstance(optimizer, MasterWeights):
        return {}
    return optimizer.named(trainer.accelerator.unwrap_model(trainer.model))

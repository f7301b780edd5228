"""Chooses by free memory how whole weights are held during training, and describes the choice."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.errors import InputError
from kernelwright.rl.training.options import Precision

if TYPE_CHECKING:
    import torch

GIGABYTE = 10**9
FP32_TRAINING_BYTES = 18
"""Bytes a parameter on the device: weight, gradient and AdamW's two moments in fp32, and
autocast's copy in bf16.
"""
BF16_TRAINING_BYTES = 4
"""Bytes a parameter on the device: weight and gradient in bf16."""
MASTER_BYTES = 12
"""Bytes a parameter in host memory: the master and AdamW's two moments in fp32."""
DEVICE_SHARE = 0.6
"""Share of the device's free memory for the training; activations and the sampling policy use the
rest.
"""
HOST_SHARE = 0.9
"""Share of the host's free memory for masters and moments."""


class FreeMemory(NamedTuple):
    """Free memory in bytes. `device` is None for training on the CPU."""

    device: int | None
    host: int


class HeldWeights(NamedTuple):
    """A model ready for training."""

    model: Any
    masters: dict[torch.nn.Parameter, torch.Tensor] | None
    """fp32 masters by weight; None if the weights themselves are trained."""
    text: str
    """Description of how the weights are held."""


def hold_weights(model: Any, device: str, requested: Precision) -> HeldWeights:
    """Moves a model with fp32 weights from the CPU to its device. Raises InputError if memory
    does not suffice.
    """
    import torch

    size = sum(weight.numel() for weight in model.parameters())
    try:
        precision = choose_precision(size, requested, free_memory(device))
        if precision is Precision.FP32:
            text = f"weights fp32: {size * FP32_TRAINING_BYTES / GIGABYTE:.1f} GB with gradients and optimizer"
            return HeldWeights(model.to(device), None, text)
        masters = _narrowed(model, device)
        text = (
            f"weights bf16 with fp32 masters: {size * BF16_TRAINING_BYTES / GIGABYTE:.1f} GB on {device} and "
            f"{size * MASTER_BYTES / GIGABYTE:.1f} GB in host memory with the optimizer"
        )
        return HeldWeights(model.to(device), masters, text)
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"{size:,} parameters do not fit on {device}: use --lora, or a smaller base"
        ) from error


def choose_precision(size: int, requested: Precision, memory: FreeMemory) -> Precision:
    """Returns fp32 if `size` parameters fit the device in fp32, and otherwise bf16 with masters.

    Raises InputError if neither fits. A requested precision is returned unchanged.
    """
    if requested is not Precision.AUTO:
        return requested
    if memory.device is None or size * FP32_TRAINING_BYTES <= DEVICE_SHARE * memory.device:
        return Precision.FP32
    # The fp32 weights are in host memory already: they become the masters.
    moments = (MASTER_BYTES - 4) * size
    if (
        size * BF16_TRAINING_BYTES <= DEVICE_SHARE * memory.device
        and moments <= HOST_SHARE * memory.host
    ):
        return Precision.BF16
    raise InputError(
        f"{size / 1e9:.1f} B parameters need {size * FP32_TRAINING_BYTES / GIGABYTE:.0f} GB of GPU memory in fp32, or "
        f"{size * BF16_TRAINING_BYTES / GIGABYTE:.0f} GB and {moments / GIGABYTE:.0f} GB of host memory in bf16 with "
        f"fp32 masters; free are {memory.device / GIGABYTE:.0f} GB and {memory.host / GIGABYTE:.0f} GB: use --lora, or "
        "a smaller base"
    )


def free_memory(device: str) -> FreeMemory:
    """Returns the free memory of a device, and this process's share of the host's."""
    import psutil
    import torch

    host = psutil.virtual_memory().available // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return FreeMemory(
        torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else None, host
    )


def _narrowed(model: Any, device: str) -> dict[torch.nn.Parameter, torch.Tensor]:
    """Moves bf16 copies of the weights to the device, each in turn, and returns the fp32 weights
    as their masters.
    """
    import torch

    masters = {}
    for weight in model.parameters():
        masters[weight] = weight.data
        # The fp32 tensor stays in host memory as the master.
        weight.data = weight.data.to(device, torch.bfloat16)
    return masters

"""Fills uninitialised memory with ordinary numbers, which a kernel cannot distinguish from a
tensor's contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


NOISE = 0x100
"""Value that selects noise where a poison is given by its byte."""
_SEED = 0x5EED
_ONE = 0x38
"""1.0 as an eight-bit float (e4m3); the byte is an ordinary number in other such types and in
complex numbers, too."""
MAX_NOISE_INTEGER = 3
"""Largest random integer; the smallest is 0."""


def fill_memory(memory: torch.Tensor, tensor: torch.Tensor, poison: int) -> None:
    """Fills the memory of a tensor.

    memory: its bytes. poison: a byte, or NOISE: normal floats, small integers, random booleans.
    """
    if poison < NOISE:
        memory.fill_(poison)
        return
    import torch

    dtype = tensor.dtype
    memory.fill_(0)
    flat = memory[: memory.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    generator = torch.Generator(device=memory.device)
    generator.manual_seed(_SEED ^ memory.numel())
    if dtype.is_floating_point and dtype.itemsize > 1:
        flat.normal_(generator=generator)
    elif dtype.is_floating_point or dtype.is_complex:
        memory.fill_(_ONE)
    else:
        flat.random_(0, 2 if dtype == torch.bool else MAX_NOISE_INTEGER + 1, generator=generator)

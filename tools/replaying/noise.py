"""Memory that nobody has set, filled with ordinary numbers: what a kernel cannot tell from a real tensor's contents."""

from __future__ import annotations

from typing import Any

NOISE = 0x100
"""Stands for noise where a poison is named by its byte."""
_SEED = 0x5EED
_ONE = 0x38
"""1.0 as an eight-bit float (e4m3); other such types and complex numbers hold an ordinary number then, too."""
MAX_INTEGER = 3
"""Integers are drawn from 0 to this, both included."""


def fill_memory(memory: Any, tensor: Any, poison: int) -> None:
    """Sets memory that a tensor lies in.

    memory: its bytes. poison: a byte, or NOISE: normal floats, small whole numbers, booleans at random.
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
        flat.random_(0, 2 if dtype == torch.bool else MAX_INTEGER + 1, generator=generator)

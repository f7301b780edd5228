"""Memory ranges of tensors, and recognition of out-of-memory errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

POISON_BYTE = 0xFF
"""Byte in memory which nobody has set, unless a call names another."""
_NO_MEMORY = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|CU[A-Z]+_STATUS_ALLOC_FAILED|CUDA error: out of memory"
)
"""Messages of out-of-memory errors without a class in torch: its CPU allocator, and libraries
with own allocators on a GPU.
"""


def found_no_memory(error: BaseException) -> bool:
    """Returns whether an error of torch, or of a library that it calls, means out of memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    try:
        return isinstance(error, RuntimeError) and bool(_NO_MEMORY.search(str(error)))
    except Exception:  # an exception of a candidate's whose text cannot be read
        return False


def has_memory(value: object) -> bool:
    """Returns whether a value is a strided tensor with elements."""
    import torch

    return isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel() > 0


def storage_of(tensor: torch.Tensor) -> int:
    """Returns the address of a tensor's storage."""
    return int(tensor.untyped_storage().data_ptr())


def address_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns the address of the first byte and the address after the last byte of a tensor with
    elements.
    """
    steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    begin = int(tensor.data_ptr())
    return begin, begin + (steps + 1) * int(tensor.element_size())


def overlap(first: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns True if the address ranges of two nonempty tensors overlap."""
    (begin, end), (low, high) = address_range(first), address_range(other)
    return begin < high and low < end

"""Where the elements of a tensor lie, and errors that say that there is no room for them."""

from __future__ import annotations

import re
from typing import Any

_NO_MEMORY = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|CU[A-Z]+_STATUS_ALLOC_FAILED|CUDA error: out of memory"
)
"""What torch has no class for: its allocator on a CPU, and libraries that allocate by themselves on a GPU."""


def found_no_memory(error: BaseException) -> bool:
    """Whether an error of torch, or of a library that it calls, says that there is no memory left."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    try:
        return isinstance(error, RuntimeError) and bool(_NO_MEMORY.search(str(error)))
    except Exception:  # an exception of a candidate's whose text cannot be read
        return False


def has_memory(value: Any) -> bool:
    """Whether it is a tensor with elements that lie in memory one by one."""
    import torch

    return isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel() > 0


def storage_of(tensor: Any) -> int:
    """The address of its storage."""
    return int(tensor.untyped_storage().data_ptr())


def address_range(tensor: Any) -> tuple[int, int]:
    """Addresses of its first byte, and of the one after its last; the tensor has elements."""
    steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    begin = int(tensor.data_ptr())
    return begin, begin + (steps + 1) * int(tensor.element_size())


def overlap(one: Any, other: Any) -> bool:
    """Whether the ranges of their addresses do; both have elements."""
    (begin, end), (low, high) = address_range(one), address_range(other)
    return begin < high and low < end

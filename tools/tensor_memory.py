"""Where the elements of a tensor lie."""

from __future__ import annotations

from typing import Any


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

"""Memory for the allocations of a trace on a CPU: one reservation per process, reused by every
call.

Each tensor has its own storage. Neighbours are GAP_BYTES apart, and the pages between them are
never touched. A kernel which leaves its tensor therefore meets no other tensor, and `as_strided`
in the host code ends at the end of its own allocation. Every tensor is filled with poison before
use.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

from kernelwright.tools.replaying import noise
from kernelwright.tools.report import Failed, Failure, Fault

if TYPE_CHECKING:
    import torch

RESERVED_BYTES = 4 << 30
"""Bytes of address space. Only written pages take memory (bounded by MAX_ALLOCATED_BYTES of
steps.py).
"""
MIN_ARENA_BYTES = 64 << 20
GAP_BYTES = 1 << 18
"""Bytes between two tensors, as long as half of the reservation is free."""
_NO_RESERVE = 0x4000
"""MAP_NORESERVE (Linux, mman.h), which Python 3.11 does not name."""
_ALIGN = 4096
_TRIM_ABOVE = 256 << 20
"""Bytes in use beyond which a reset gives pages back to the system."""


class Arena:
    """Stack of allocations: `mark` returns the top of the stack, `reset` drops every tensor above
    a mark.
    """

    made_on = "meta"

    def __init__(self, reserved: int = RESERVED_BYTES) -> None:
        """Reserves address space. Raises OSError if the process may not reserve MIN_ARENA_BYTES."""
        self._memory = _reserve(reserved)
        self._size, self._top, self._highest = len(self._memory), GAP_BYTES, 0
        self.poison = 0xFF

    def mark(self) -> int:
        """Returns the number of used bytes, an argument of `reset`."""
        return self._top

    def reset(self, mark: int, poison: int) -> None:
        """Frees all memory above the mark; later tensors are filled with `poison`. Tensors above
        the mark become invalid.
        """
        if self._highest - mark > _TRIM_ABOVE:
            # Pages which were given back read as zeros; fresh tensors are filled with poison anyway.
            begin = -(-mark // _ALIGN) * _ALIGN
            self._memory.madvise(mmap.MADV_DONTNEED, begin, self._size - begin)
            self._highest = mark
        self._top, self.poison = max(mark, GAP_BYTES), poison

    def fresh(self, meta: torch.Tensor, fill: float | None) -> Any:
        """Returns a tensor with the shape, strides and dtype of `meta` (on the meta device),
        filled with `fill` or with poison. Raises Failed with MEMORY if the reservation is full.
        """
        import torch

        used = _extent(meta)
        if not used or meta.layout is not torch.strided:
            return torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype)
        begin, gap = self._top, GAP_BYTES if self._top < self._size // 2 else _ALIGN
        if begin + used + GAP_BYTES > self._size:
            raise Failed(
                Failure(
                    fault=Fault.MEMORY,
                    message=f"one call of forward allocates more than {self._size >> 20} MiB",
                )
            )
        self._top = begin + -(-used // _ALIGN) * _ALIGN + gap
        self._highest = max(self._highest, self._top)
        flat = torch.frombuffer(self._memory, dtype=torch.uint8, count=used, offset=begin)
        if fill is None:
            noise.fill_memory(flat, meta, self.poison)
        tensor = flat.view(meta.dtype).as_strided(meta.shape, meta.stride())
        return tensor if fill is None else tensor.fill_(fill)


def _reserve(size: int) -> mmap.mmap:
    """Reserves as much as the limit on the address space allows."""
    while True:
        try:
            return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        except OSError:
            if (size := size // 2) < MIN_ARENA_BYTES:
                raise


def _extent(tensor: torch.Tensor) -> int:
    """Returns the bytes from the first to the last element."""
    if not tensor.numel():
        return 0
    steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return int(steps + 1) * int(tensor.element_size())

"""Memory for what a trace allocates on a CPU: one reservation per process, used anew by every call.

Each tensor has a storage of its own extent, and lies GAP bytes from its neighbours in pages that are never touched. So
a kernel that leaves its tensor does not meet another one, and what the host code asks of `as_strided` ends where its
own allocation would have ended. Poison is written anew for every tensor.
"""

from __future__ import annotations

import mmap
from typing import Any

from kernelwright.tools.replaying import noise
from kernelwright.tools.report import Failed, Failure, Fault

RESERVED_BYTES = 4 << 30
"""Bytes of address space. Only what is written takes memory (MAX_ALLOCATED_BYTES of steps.py bounds that)."""
MIN_ARENA_BYTES = 64 << 20
GAP_BYTES = 1 << 18
"""Bytes between two tensors, as long as half of the reservation is free."""
_NO_RESERVE = 0x4000
"""MAP_NORESERVE (Linux, mman.h), which Python 3.11 does not name."""
_ALIGN = 4096
_TRIM_ABOVE = 256 << 20
"""Bytes in use beyond which a reset gives pages back to the system."""


class Arena:
    """A stack of allocations: `mark` says where it stands, `reset` drops everything above a mark."""

    made_on = "meta"

    def __init__(self, reserved: int = RESERVED_BYTES) -> None:
        """Raises OSError where the limits of the process leave no room even for LEAST bytes."""
        self._memory = _reserve(reserved)
        self._size, self._top, self._highest = len(self._memory), GAP_BYTES, 0
        self.poison = 0xFF

    def mark(self) -> int:
        """Bytes from the arena's beginning to the first that is free; `reset` takes it."""
        return self._top

    def reset(self, mark: int, poison: int) -> None:
        """Memory above the mark is handed out again, set to `poison`. Nobody may look at tensors that lie there any
        more.
        """
        if self._highest - mark > _TRIM_ABOVE:
            begin = -(-mark // _ALIGN) * _ALIGN
            self._memory.madvise(mmap.MADV_DONTNEED, begin, self._size - begin)
            self._highest = mark
        self._top, self.poison = max(mark, GAP_BYTES), poison

    def fresh(self, made: Any, fill: float | None) -> Any:
        """A tensor of the form of `made` (on the meta device), filled or poisoned. Raises Failed with MEMORY where the
        reservation is full.
        """
        import torch

        used = _extent(made)
        if not used or made.layout is not torch.strided:
            return torch.empty_strided(made.shape, made.stride(), dtype=made.dtype)
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
            noise.fill_memory(flat, made, self.poison)
        tensor = flat.view(made.dtype).as_strided(made.shape, made.stride())
        return tensor if fill is None else tensor.fill_(fill)


def _reserve(size: int) -> mmap.mmap:
    """Reserves as much as the limit on the address space allows."""
    while True:
        try:
            return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        except OSError:
            if (size := size // 2) < MIN_ARENA_BYTES:
                raise


def _extent(made: Any) -> int:
    """Returns the bytes from the first to the last element."""
    if not made.numel():
        return 0
    steps = sum((n - 1) * s for n, s in zip(made.shape, made.stride(), strict=True))
    return int(steps + 1) * int(made.element_size())

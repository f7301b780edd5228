"""Where the tensors of a call lie in this process's memory, and whether an address is in one of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import numpy as np

NEAR_BYTES = 1 << 18
"""Bytes from a tensor within which a read is answered with poison; one farther off ends the call."""


class Extents:
    """The storages of some tensors, in the order of their addresses."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        """Tensors that are not strided, and storages without bytes, are left out."""
        import torch

        found: dict[int, int] = {}
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                if size := storage.nbytes():
                    start = storage.data_ptr()
                    found[start] = max(found.get(start, 0), start + size)
        self.starts = sorted(found)
        self.ends = [found[start] for start in self.starts]
        self._arrays: tuple[Any, Any] | None = None

    def holding(self, low: int, high: int) -> int:
        """The index of the storage that holds every byte from `low` up to `high`; -1 where there is none."""
        index = bisect_right(self.starts, low) - 1
        return index if index >= 0 and high <= self.ends[index] else -1

    def places(self, addresses: Any, size: int) -> Any:
        """For each address the index of the storage that holds its `size` bytes, or -1."""
        if not self.starts:
            return np.full(addresses.shape, -1)
        starts, ends = self._as_arrays()
        index = np.searchsorted(starts, addresses, side="right") - 1
        inside = (index >= 0) & (addresses <= ends[index] - np.uint64(size))
        return np.where(inside, index, -1)

    def far(self, addresses: Any) -> bool:
        """Whether one of the addresses, none of which lies in a storage, is more than NEAR bytes from every storage."""
        if not self.starts:
            return bool(addresses.size)
        starts, ends = self._as_arrays()
        after = np.searchsorted(starts, addresses, side="right")
        above = addresses - ends[np.maximum(after - 1, 0)]
        below = starts[np.minimum(after, len(starts) - 1)] - addresses
        near = ((after > 0) & (above <= NEAR_BYTES)) | ((after < len(starts)) & (below <= NEAR_BYTES))
        return not bool(near.all())

    def described(self, address: int) -> str:
        """Where an address that lies in no storage is, seen from the nearest one."""
        index = bisect_right(self.starts, address)
        before = address - self.ends[index - 1] if index else None
        after = self.starts[index] - address if index < len(self.starts) else None
        if before is not None and before <= NEAR_BYTES and (after is None or before <= after):
            return (
                f"{max(before, 0)} bytes past the end of a tensor of "
                f"{self.ends[index - 1] - self.starts[index - 1]} "
                "bytes"
            )
        if after is not None and after <= NEAR_BYTES:
            return f"{after} bytes before a tensor of {self.ends[index] - self.starts[index]} bytes"
        return "far from every tensor"

    def _as_arrays(self) -> tuple[Any, Any]:
        if self._arrays is None:
            self._arrays = np.array(self.starts, np.uint64), np.array(self.ends, np.uint64)
        return self._arrays

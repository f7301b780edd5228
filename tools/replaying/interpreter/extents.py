"""Where the tensors of a call lie in this process's memory, and whether an address is in one of them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

NEAR_BYTES = 1 << 18
"""Bytes from a tensor within which a read is answered with poison; one farther off ends the call."""


class Extents:
    """The storages of some tensors, in the order of their addresses."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        """Tensors that are not strided, and storages without bytes, are left out."""
        found: dict[int, int] = {}
        for tensor in tensors:
            if (place := _storage(tensor)) is not None:
                start, end = place
                found[start] = max(found.get(start, 0), end)
        self.starts = sorted(found)
        self.ends = [found[start] for start in self.starts]
        self._arrays: tuple[Any, Any] | None = None

    def holding(self, low: int, high: int) -> int:
        """The index of the storage that holds every byte from `low` up to `high`; -1 where there is none."""
        index = bisect_right(self.starts, low) - 1
        return index if index >= 0 and high <= self.ends[index] else -1

    def places(self, addresses: Any, size: int) -> Any:
        """Returns for each address the index of the storage that holds its `size` bytes, or -1."""
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
        """Says in words where an address that lies in no storage is, seen from the nearest one."""
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


def _storage(tensor: Any) -> tuple[int, int] | None:
    """Returns where a tensor's storage begins and ends; None for what has none."""
    import torch

    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    return (start, start + size) if size and (start := storage.data_ptr()) >= 0 else None


class TensorTable(dict[int, Any]):
    """The tensors of a call by their numbers, which knows their extents: a call of thousands of launches over
    thousands of views looks at each tensor once, not at every launch.
    """

    def __init__(self, tensors: Mapping[int, Any]) -> None:
        super().__init__(tensors)
        self._extents: Extents | None = None
        self._places: dict[int, tuple[int, int] | None] = {}
        self._holders: Counter[tuple[int, int]] = Counter()
        self.recount()

    def recount(self) -> None:
        """Has to be called after a storage has changed its size or its place."""
        self._places = {number: _storage(tensor) for number, tensor in self.items()}
        self._holders = Counter(filter(None, self._places.values()))
        self._extents = None

    def extents(self) -> Extents:
        """The extents of all tensors that are there now."""
        if self._extents is None:
            self._extents = Extents(self.values())
        return self._extents

    def __setitem__(self, number: int, tensor: Any) -> None:
        self._forget(number)
        super().__setitem__(number, tensor)
        self._places[number] = place = _storage(tensor)
        if place is not None:
            self._holders[place] += 1
            if self._holders[place] == 1:
                self._extents = None

    def __delitem__(self, number: int) -> None:
        self._forget(number)
        super().__delitem__(number)

    def pop(self, number: int, *default: Any) -> Any:
        """Works as that of a dict."""
        self._forget(number)
        return super().pop(number, *default)

    def update(self, *others: Any, **named: Any) -> None:
        """Works as that of a dict."""
        super().update(*others, **named)
        self.recount()

    def _forget(self, number: int) -> None:
        place = self._places.pop(number, None)
        if place is not None:
            self._holders[place] -= 1
            if not self._holders[place]:
                del self._holders[place]
                self._extents = None

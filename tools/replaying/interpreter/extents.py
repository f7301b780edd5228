"""Where the tensors of a call lie in this process's memory, whether an address is in one of them, and which elements of
the inputs a call reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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
        near = ((after > 0) & (above <= NEAR_BYTES)) | (
            (after < len(starts)) & (below <= NEAR_BYTES)
        )
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


MAX_UNREAD_RANGES = 4096
"""Ranges of elements of one tensor that are told; more are not looked at."""


class _Span(NamedTuple):
    """The memory of one tensor, from its first byte to the one after its last."""

    begin: int
    end: int
    size: int
    """Bytes of an element."""
    read: Any
    """bool array, one element for each in memory."""


class ReadElements:
    """Which elements of the inputs of a call are read, by kernels or by operators of torch.

    A copy that torch makes of an input (`contiguous`, another type) reads nothing by itself: elements of the copy that
    are read count as those that they were copied from.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        """inputs: the arguments of forward; those without memory are left out."""
        from kernelwright.tools.tensor_memory import has_memory

        self._inputs = {
            number: tensor for number, tensor in enumerate(inputs) if has_memory(tensor)
        }
        self._spans: list[_Span] = []
        self._copies: list[tuple[Any, Any]] = []
        """Flags of what was copied and of the copy, in the order in which the copies were made."""
        for tensor in self._inputs.values():
            self._follow(tensor)

    def _follow(self, tensor: Any) -> None:
        from kernelwright.tools.tensor_memory import address_range

        begin, end = address_range(tensor)
        size = int(tensor.element_size())
        self._spans.append(_Span(begin, end, size, np.zeros((end - begin) // size, np.bool_)))

    def note(self, addresses: Any, mask: Any, size: int) -> None:
        """Notes a load of `size` bytes at each address where the mask holds."""
        active = addresses[mask]
        if not active.size:
            return
        low, high = int(active.min()), int(active.max())
        for span in self._spans:
            if low >= span.end or high < span.begin:
                continue
            inside = active
            if low < span.begin or high >= span.end:
                inside = active[(active >= np.uint64(span.begin)) & (active < np.uint64(span.end))]
            elements = ((inside - np.uint64(span.begin)) // np.uint64(span.size)).astype(np.intp)
            for step in range(max(size // span.size, 1)):
                span.read[np.minimum(elements + step, span.read.size - 1)] = True

    def note_tensor(self, tensor: Any) -> None:
        """Notes that torch reads all elements of a tensor, which may be a view of an input."""
        for flags in self._flags_of(tensor):
            _without_repeats(flags)[0].fill_(True)

    def note_copy(self, source: Any, copy: Any) -> None:
        """Notes that torch copies a tensor element by element into another one of its shape."""
        flags = self._flags_of(source)
        if not flags:
            return
        self._follow(copy)
        of_copy = self._flags_in(self._spans[-1], copy)
        self._copies += [(one, of_copy) for one in flags]

    def _flags_of(self, tensor: Any) -> list[Any]:
        """The flags of a tensor's elements, once for each followed tensor that lies there."""
        from kernelwright.tools.tensor_memory import address_range, has_memory

        if not has_memory(tensor):
            return []
        begin, end = address_range(tensor)
        return [
            self._flags_in(span, tensor)
            for span in self._spans
            if begin < span.end and span.begin < end
        ]

    def _flags_in(self, span: _Span, tensor: Any) -> Any:
        """The flags of a tensor's elements in its shape; all flags where its elements are not the span's."""
        import torch

        flags, first = torch.from_numpy(span.read), int(tensor.data_ptr()) - span.begin
        steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        fits = (
            tensor.element_size() == span.size
            and first >= 0
            and first // span.size + steps < flags.numel()
        )
        return (
            flags.as_strided(tensor.shape, tensor.stride(), first // span.size) if fits else flags
        )

    def unread(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """Returns the inputs that were not read completely: their positions, and ranges of elements, in the order of
        the input's indices, that were not read.
        """
        for source, copy in reversed(self._copies):
            repeated = source.shape == copy.shape
            flags, dims = _without_repeats(source)
            for dim in dims if repeated else ():
                copy = copy.any(dim, keepdim=True)
            if repeated:
                flags |= copy
            elif bool(copy.any()):
                flags.fill_(True)
        found = []
        for (number, tensor), span in zip(self._inputs.items(), self._spans, strict=False):
            if not span.read.all():
                missing = ~self._flags_in(span, tensor).reshape(-1).numpy()
                if missing.any():
                    found.append((number, _ranges(missing)))
        return found


def _without_repeats(flags: Any) -> tuple[Any, list[int]]:
    """The flags with one element in each dimension along which memory is shown again and again, and these dimensions:
    torch writes nothing to such a tensor.
    """
    dims = [dim for dim in range(flags.dim()) if flags.stride(dim) == 0 and flags.shape[dim] > 1]
    for dim in dims:
        flags = flags.narrow(dim, 0, 1)
    return flags, dims


def _ranges(flags: Any) -> list[tuple[int, int]]:
    """Returns beginnings and ends of the runs of True, the first MAX_UNREAD_RANGES of them."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.view(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)[:MAX_UNREAD_RANGES]]

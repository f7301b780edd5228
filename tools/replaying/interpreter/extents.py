"""Address ranges of the tensors of a call, lookups of addresses in them, and the elements of
inputs which a call reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch

NEAR_BYTES = 1 << 18
"""Distance in bytes from a tensor up to which a read returns poison; a read farther away ends the
call.
"""


class Extents:
    """The storages of some tensors, in the order of their addresses."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        """Collects the storages of strided tensors with at least one byte."""
        end_of_storage: dict[int, int] = {}
        for tensor in tensors:
            if (bounds := _storage(tensor)) is not None:
                start, end = bounds
                end_of_storage[start] = max(end_of_storage.get(start, 0), end)
        self.starts = sorted(end_of_storage)
        self.ends = [end_of_storage[start] for start in self.starts]
        self._arrays: tuple[Any, Any] | None = None

    def holding(self, low: int, high: int) -> int:
        """Returns the index of the storage which holds all bytes from `low` up to `high`; -1 if
        there is none.
        """
        index = bisect_right(self.starts, low) - 1
        return index if index >= 0 and high <= self.ends[index] else -1

    def storage_indices(self, addresses: Any, size: int) -> Any:
        """Returns the index of the storage of `size` bytes at each address, or -1."""
        if not self.starts:
            return np.full(addresses.shape, -1)
        starts, ends = self._as_arrays()
        index = np.searchsorted(starts, addresses, side="right") - 1
        inside = (index >= 0) & (addresses <= ends[index] - np.uint64(size))
        return np.where(inside, index, -1)

    def far(self, addresses: np.ndarray) -> bool:
        """Returns whether an address is more than NEAR_BYTES from every storage. No address may
        lie inside a storage.
        """
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
        """Describes an address outside all storages relative to the nearest storage."""
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


def _storage(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Returns the first address of a tensor's storage and the address after its last; None
    without strided memory.
    """
    import torch

    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    return (start, start + size) if size and (start := storage.data_ptr()) >= 0 else None


class TensorTable(dict[int, Any]):
    """The tensors of a call by their numbers, which knows their extents: a call of thousands of
    launches over thousands of views looks at each tensor once, not at every launch.
    """

    def __init__(self, tensors: Mapping[int, Any]) -> None:
        super().__init__(tensors)
        self._extents: Extents | None = None
        self._bounds: dict[int, tuple[int, int] | None] = {}
        self._holders: Counter[tuple[int, int]] = Counter()
        self.recount()

    def recount(self) -> None:
        """Has to be called after a storage has changed its size or its place."""
        self._bounds = {number: _storage(tensor) for number, tensor in self.items()}
        self._holders = Counter(filter(None, self._bounds.values()))
        self._extents = None

    def extents(self) -> Extents:
        """Returns the extents of the current tensors."""
        if self._extents is None:
            self._extents = Extents(self.values())
        return self._extents

    def __setitem__(self, number: int, tensor: torch.Tensor) -> None:
        self._forget(number)
        super().__setitem__(number, tensor)
        self._bounds[number] = bounds = _storage(tensor)
        if bounds is not None:
            self._holders[bounds] += 1
            if self._holders[bounds] == 1:
                self._extents = None

    def __delitem__(self, number: int) -> None:
        self._forget(number)
        super().__delitem__(number)

    def pop(self, number: int, *default: Any) -> Any:
        """Removes a tensor, like dict.pop."""
        self._forget(number)
        return super().pop(number, *default)

    def update(self, *mappings: Any, **named: Any) -> None:
        """Adds tensors, like dict.update."""
        super().update(*mappings, **named)
        self.recount()

    def _forget(self, number: int) -> None:
        bounds = self._bounds.pop(number, None)
        if bounds is not None:
            self._holders[bounds] -= 1
            if not self._holders[bounds]:
                del self._holders[bounds]
                self._extents = None


MAX_UNREAD_RANGES = 4096
"""Maximum number of reported ranges of unread elements per tensor."""


class _Span(NamedTuple):
    """Memory of one tensor, from its first byte up to the byte after its last."""

    begin: int
    end: int
    size: int
    """Bytes per element of the tensor."""
    read: Any
    """Bool array with a flag for each element in memory: whether the element was read."""


class ReadElements:
    """Elements of the inputs read in a call, by kernels or by operators of torch.

    A copy made by torch (`contiguous`, a cast) reads nothing by itself: reading an element of the
    copy counts as reading its source element.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        """inputs: the arguments of forward; those without memory are left out."""
        from kernelwright.tools.tensor_memory import has_memory

        self._inputs = {
            number: tensor for number, tensor in enumerate(inputs) if has_memory(tensor)
        }
        self._spans: list[_Span] = []
        self._copies: list[tuple[Any, Any]] = []
        """Pairs (flags of the source, flags of the copy), in the order of the copies."""
        for tensor in self._inputs.values():
            self._follow(tensor)

    def _follow(self, tensor: torch.Tensor) -> None:
        from kernelwright.tools.tensor_memory import address_range

        begin, end = address_range(tensor)
        size = int(tensor.element_size())
        self._spans.append(_Span(begin, end, size, np.zeros((end - begin) // size, np.bool_)))

    def note(self, addresses: np.ndarray, mask: np.ndarray | slice, size: int) -> None:
        """Notes a load of `size` bytes at each address with a true mask."""
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

    def note_tensor(self, tensor: torch.Tensor) -> None:
        """Records a read by torch of all elements of a tensor, possibly a view of an input."""
        for flags in self._flags_of(tensor):
            _without_repeats(flags)[0].fill_(True)

    def note_copy(self, source: torch.Tensor, copy: torch.Tensor) -> None:
        """Notes an elementwise copy by torch from one tensor to another of the same shape."""
        flags = self._flags_of(source)
        if not flags:
            return
        self._follow(copy)
        of_copy = self._flags_in(self._spans[-1], copy)
        self._copies += [(source_flags, of_copy) for source_flags in flags]

    def _flags_of(self, tensor: torch.Tensor) -> list[Any]:
        """Returns the flags of a tensor's elements, once for each followed tensor in the same
        memory.
        """
        from kernelwright.tools.tensor_memory import address_range, has_memory

        if not has_memory(tensor):
            return []
        begin, end = address_range(tensor)
        return [
            self._flags_in(span, tensor)
            for span in self._spans
            if begin < span.end and span.begin < end
        ]

    def _flags_in(self, span: _Span, tensor: torch.Tensor) -> Any:
        """Returns the flags of a tensor's elements in the tensor's shape; all flags of the span
        if the elements differ.
        """
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
        """Returns the inputs with unread elements: position of the input, and ranges of element
        indices in row-major order.
        """
        # Copies of copies come later: carry reads back to the sources from the last copy to the first.
        for source, copy in reversed(self._copies):
            repeated = source.shape == copy.shape
            flags, dims = _without_repeats(source)
            for dim in dims if repeated else ():
                copy = copy.any(dim, keepdim=True)
            if repeated:
                flags |= copy
            elif bool(copy.any()):
                flags.fill_(True)
        unread_inputs = []
        for (number, tensor), span in zip(self._inputs.items(), self._spans, strict=False):
            if not span.read.all():
                missing = ~self._flags_in(span, tensor).reshape(-1).numpy()
                if missing.any():
                    unread_inputs.append((number, _ranges(missing)))
        return unread_inputs


def _without_repeats(flags: torch.Tensor) -> tuple[Any, list[int]]:
    """Returns the flags with each broadcast dimension (stride 0) reduced to one element, and
    these dimensions: torch refuses to write to a broadcast tensor.
    """
    dims = [dim for dim in range(flags.dim()) if flags.stride(dim) == 0 and flags.shape[dim] > 1]
    for dim in dims:
        flags = flags.narrow(dim, 0, 1)
    return flags, dims


def _ranges(flags: np.ndarray) -> list[tuple[int, int]]:
    """Returns beginnings and ends of the runs of True, the first MAX_UNREAD_RANGES of them."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.view(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)[:MAX_UNREAD_RANGES]]

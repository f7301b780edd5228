"""Allocates the memory of a replayed trace: poisoned, and between two margins whose bytes are
checked afterwards.

Works for CPUs and GPUs. Example, for a float32 tensor of shape (1000,), all sizes in bytes:

    | 65,536 x 0xA5 | 4,000 x poison | 65,536 x 0xA5 |

A kernel that reads elements it should have written finds poison; a changed 0xA5 was written outside
of the tensor.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from kernelwright.tools.replaying import noise

if TYPE_CHECKING:
    import torch


TENSOR_MARGIN_BYTES = 1 << 16
"""Bytes on each side of a tensor."""
SENTINEL_BYTE = 0xA5
_ALIGNMENT = 512
"""Alignment, in bytes, of addresses from torch's caching allocator on a GPU: a tensor between
margins keeps this alignment."""
LARGE_TENSOR_BYTES = 64 << 20
"""Size, in bytes, from which a tensor's memory is freed as soon as the tensor is dropped. Smaller
tensors are freed after the call."""

Guarded = tuple[Any, int, "weakref.ref[Any]"]
"""Memory with its margins, the bytes between them, and a weak reference that lives as long as any
tensor in the memory."""


class Allocations:
    """Allocations of a single run of a trace's steps."""

    def __init__(
        self, poison: int | None, margin: int = TENSOR_MARGIN_BYTES, device: str = "cuda:0"
    ) -> None:
        """Starts without allocations.

        poison: byte, or NOISE, for memory that the host code requests and does not fill; None
        leaves the memory as allocated. margin: bytes on each side; 0 for none (the clock).
        """
        if margin % _ALIGNMENT:
            raise ValueError(f"the margin has to be a multiple of {_ALIGNMENT} bytes")
        self._poison = poison
        self._margin = margin
        self._device = device
        self.made_on = "meta" if margin else device
        """Device on which an operator allocates the argument of `fresh`: with margins its form
        suffices."""
        self._guarded: list[Guarded] = []
        self._large: list[Guarded] = []
        self._changed: list[Any] = []
        """Booleans on the device: whether the margins of a dropped large tensor had changed."""
        self.ranges: list[tuple[int, int]] = []
        """Address and size of every allocation."""

    def fresh(self, meta: torch.Tensor, fill: float | None) -> Any:
        """Returns the tensor that replaces a newly allocated one: equal shape, strides and dtype,
        contents `fill` or poison.

        Without margins this is the tensor itself, already filled by the operator. Also returns the
        tensor itself, on the device, if empty.
        """
        import torch

        if meta.layout is not torch.strided or not meta.numel():
            return meta if not meta.is_meta else torch.empty_like(meta, device=self._device)
        used = extent(meta)
        if not self._margin:
            self.ranges.append((meta.data_ptr(), used))
            if fill is None and self._poison is not None:
                noise.fill_memory(_bytes_of(meta, used), meta, self._poison)
            return meta
        memory = torch.empty(used + 2 * self._margin, dtype=torch.uint8, device=self._device)
        memory[: self._margin].fill_(SENTINEL_BYTE)
        memory[self._margin + used :].fill_(SENTINEL_BYTE)
        flat, holder = _apart(memory, self._margin, used)
        inside = flat.view(meta.dtype).as_strided(meta.shape, meta.stride())
        if fill is not None:
            inside.fill_(fill)
        elif self._poison is not None:
            noise.fill_memory(flat, meta, self._poison)
        (self._large if used >= LARGE_TENSOR_BYTES else self._guarded).append(
            (memory, used, weakref.ref(holder))
        )
        self.ranges.append((inside.data_ptr(), used))
        return inside

    def made_bytes(self) -> int:
        """Total size of all allocations, in bytes."""
        return sum(used for _, used in self.ranges)

    def let_go(self) -> None:
        """Checks the margins of dropped large tensors and frees their memory, so that the run needs
        no more than the host code holds."""
        live: list[Guarded] = []
        for memory, used, holder in self._large:
            if holder() is None:
                self._changed.append(_changed(memory, self._margin, used))
            else:
                live.append((memory, used, holder))
        self._large = live

    def written_outside(self) -> bool:
        """Returns True if a byte next to any tensor was changed. Waits for the device."""
        import torch

        looked_at = [
            _changed(memory, self._margin, used)
            for memory, used, _ in (*self._guarded, *self._large)
        ]
        return (
            bool(torch.stack([*self._changed, *looked_at]).any())
            if self._changed or looked_at
            else False
        )


def extent(tensor: torch.Tensor) -> int:
    """Returns the bytes from the first to the last element of a nonempty strided tensor."""
    steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()


class _Part:
    """Part of a byte tensor on a GPU for torch.as_tensor. The resulting tensor holds a reference to
    it."""

    def __init__(self, memory: torch.Tensor, start: int, nbytes: int) -> None:
        self.held = memory
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (memory.data_ptr() + start, False),
            "version": 3,
            "strides": None,
        }


def _apart(memory: torch.Tensor, start: int, nbytes: int) -> tuple[Any, Any]:
    """Returns a part of a byte tensor as a tensor with its own storage, and an object that lives as
    long as any view of it.

    `as_strided` with an offset counts from the part's start and cannot pass its end. There is no
    reference cycle, so that gigabytes do not wait for the garbage collector.
    """
    import torch

    if memory.device.type == "cpu":
        array = memory.numpy()[start : start + nbytes]
        return torch.from_numpy(array), array
    part = _Part(memory, start, nbytes)
    return torch.as_tensor(part, device=memory.device), part


def _bytes_of(tensor: torch.Tensor, used: int) -> Any:
    import torch

    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(
        tensor.untyped_storage(), tensor.storage_offset() * tensor.element_size(), (used,), (1,)
    )


def _changed(memory: torch.Tensor, margin: int, used: int) -> Any:
    """Returns a boolean on the device, so that several tensors are checked with a single
    synchronisation.

    Compares aligned words of eight bytes.
    """
    import torch

    word = int.from_bytes(bytes([SENTINEL_BYTE]) * 8, "little", signed=True)
    odd = -(margin + used) % 8
    before = (memory[:margin].view(torch.int64) != word).any()
    between = (memory[margin + used : margin + used + odd] != SENTINEL_BYTE).any()
    trailing = memory[margin + used + odd :]
    whole = trailing.numel() // 8 * 8
    after = (trailing[:whole].view(torch.int64) != word).any()
    return before | between | after | (trailing[whole:] != SENTINEL_BYTE).any()

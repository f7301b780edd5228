"""Memory that a replayed trace allocates: poisoned, and between two margins whose bytes are looked at afterwards.

Works alike on a CPU and on a GPU.
"""

from __future__ import annotations

import weakref
from typing import Any

from kernelwright.tools.replaying import noise

MARGIN_BYTES = 1 << 16
"""Bytes on each side of a tensor."""
SENTINEL_BYTE = 0xA5
_ALIGNMENT = 512
"""Bytes, of every address that torch's caching allocator gives on a GPU: a tensor between margins begins at such an
address too.
"""
LARGE_TENSOR_BYTES = 64 << 20
"""Bytes of a tensor from which on its memory is given back as soon as it is dropped; that of the others is given back
when the call is over.
"""

Guarded = tuple[Any, int, "weakref.ref[Any]"]
"""Memory with its margins, bytes between them, and what is alive for as long as any tensor lies there."""


class Allocations:
    """What one run of a trace's steps allocates. Every run has its own."""

    def __init__(
        self, poison: int | None, margin: int = MARGIN_BYTES, device: str = "cuda:0"
    ) -> None:
        """poison: the byte that fills memory which the host code asks for and does not fill, or NOISE; None leaves
        it as it comes. margin: 0 for none (the clock).
        """
        if margin % _ALIGNMENT:
            raise ValueError(f"the margin has to be a multiple of {_ALIGNMENT} bytes")
        self._poison, self._margin, self._device = poison, margin, device
        self.made_on = "meta" if margin else device
        """Where an operator is to allocate what `fresh` is given: with margins its form is enough."""
        self._guarded: list[Guarded] = []
        self._large: list[Guarded] = []
        self._changed: list[Any] = []
        """A boolean on the device for each large tensor that was let go of: whether its margins had changed."""
        self.ranges: list[tuple[int, int]] = []
        """Address and bytes of everything that was allocated."""

    def fresh(self, meta: Any, fill: float | None) -> Any:
        """The tensor that takes the place of one which an operator has just allocated: the same shape, strides and
        dtype, contents `fill` or poison.

        Without margins it is that tensor itself, which the operator has filled already; so it is, on the device, where
        it holds nothing.
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
        """Bytes of everything that was allocated."""
        return sum(used for _, used in self.ranges)

    def let_go(self) -> None:
        """Looks at the margins of large tensors that nobody holds any more, and gives their memory back: host code that
        drops what it has used needs no more than it holds at a time.
        """
        held: list[Guarded] = []
        for memory, used, holder in self._large:
            if holder() is None:
                self._changed.append(_changed(memory, self._margin, used))
            else:
                held.append((memory, used, holder))
        self._large = held

    def written_outside(self) -> bool:
        """Whether a byte next to any tensor was changed. Waits for the device."""
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


def extent(tensor: Any) -> int:
    """Bytes from the first to the last element of a strided tensor with elements."""
    steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()


class _Part:
    """A part of a tensor of bytes on a GPU, as torch.as_tensor takes it. The tensor that is made of it holds it."""

    def __init__(self, memory: Any, start: int, nbytes: int) -> None:
        self.held = memory
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (memory.data_ptr() + start, False),
            "version": 3,
            "strides": None,
        }


def _apart(memory: Any, start: int, nbytes: int) -> tuple[Any, Any]:
    """A part of a tensor of bytes as a tensor with a storage of its own, so that `as_strided` with an offset counts
    from there and ends where it ends; and what it holds for as long as it, or a view of it, is there. Neither holds the
    other in a circle: memory of gigabytes does not wait for Python to look for such.
    """
    import torch

    if memory.device.type == "cpu":
        array = memory.numpy()[start : start + nbytes]
        return torch.from_numpy(array), array
    part = _Part(memory, start, nbytes)
    return torch.as_tensor(part, device=memory.device), part


def _bytes_of(tensor: Any, used: int) -> Any:
    import torch

    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(
        tensor.untyped_storage(), tensor.storage_offset() * tensor.element_size(), (used,), (1,)
    )


def _changed(memory: Any, margin: int, used: int) -> Any:
    """A boolean on the device: several tensors are looked at with one wait.

    Eight bytes at a time, where they lie on whole words.
    """
    import torch

    word = int.from_bytes(bytes([SENTINEL_BYTE]) * 8, "little", signed=True)
    odd = -(margin + used) % 8
    before = (memory[:margin].view(torch.int64) != word).any()
    between = (memory[margin + used : margin + used + odd] != SENTINEL_BYTE).any()
    rest = memory[margin + used + odd :]
    whole = rest.numel() // 8 * 8
    after = (rest[:whole].view(torch.int64) != word).any()
    return before | between | after | (rest[whole:] != SENTINEL_BYTE).any()

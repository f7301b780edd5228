"""Memory that a replayed trace allocates: poisoned, and between two margins whose bytes are looked at afterwards.

Works alike on a CPU and on a GPU.
"""

from __future__ import annotations

from typing import Any

from kernelwright.tools.replaying import noise

MARGIN_BYTES = 1 << 16
"""Bytes on each side of a tensor."""
SENTINEL_BYTE = 0xA5
_ALIGNMENT = 512
"""Bytes, of every address that torch's caching allocator gives on a GPU: a tensor between margins begins at such an
address too.
"""


class Allocations:
    """What one run of a trace's steps allocates. Every run has its own."""

    def __init__(self, poison: int | None, margin: int = MARGIN_BYTES, device: str = "cuda:0") -> None:
        """poison: the byte that fills memory which the host code asks for and does not fill, or NOISE; None leaves
        it as it comes. margin: 0 for none (the clock).
        """
        if margin % _ALIGNMENT:
            raise ValueError(f"the margin has to be a multiple of {_ALIGNMENT} bytes")
        self._poison, self._margin, self._device = poison, margin, device
        self.made_on = "meta" if margin else device
        """Where an operator is to allocate what `fresh` is given: with margins its form is enough."""
        self._guarded: list[tuple[Any, int]] = []
        self.ranges: list[tuple[int, int]] = []
        """Address and bytes of everything that was allocated."""

    def fresh(self, made: Any, fill: float | None) -> Any:
        """The tensor that takes the place of one which an operator has just allocated: the same shape, strides and
        dtype, contents `fill` or poison.

        Without margins it is that tensor itself, which the operator has filled already; so it is, on the device, where
        it holds nothing.
        """
        import torch

        if made.layout is not torch.strided or not made.numel():
            return made if not made.is_meta else torch.empty_like(made, device=self._device)
        used = extent(made)
        if not self._margin:
            self.ranges.append((made.data_ptr(), used))
            if fill is None and self._poison is not None:
                noise.fill(_bytes_of(made, used), made, self._poison)
            return made
        memory = torch.empty(used + 2 * self._margin, dtype=torch.uint8, device=self._device)
        memory[: self._margin].fill_(SENTINEL_BYTE)
        memory[self._margin + used :].fill_(SENTINEL_BYTE)
        flat = _apart(memory, self._margin, used)
        inside = flat.view(made.dtype).as_strided(made.shape, made.stride())
        if fill is not None:
            inside.fill_(fill)
        elif self._poison is not None:
            noise.fill(flat, made, self._poison)
        self._guarded.append((memory, used))
        self.ranges.append((inside.data_ptr(), used))
        return inside

    def written_outside(self) -> bool:
        """Whether a byte next to any tensor was changed. Waits for the device."""
        import torch

        if not self._guarded:
            return False
        return bool(torch.stack([_changed(memory, self._margin, used) for memory, used in self._guarded]).any())


def extent(tensor: Any) -> int:
    """Bytes from the first to the last element of a strided tensor with elements."""
    steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()


def _apart(memory: Any, start: int, nbytes: int) -> Any:
    """A part of a tensor of bytes as a tensor with a storage of its own, so that `as_strided` with an offset counts
    from there and ends where it ends. Holds the whole.
    """
    import torch

    if memory.device.type == "cpu":
        return torch.from_numpy(memory.numpy()[start : start + nbytes])

    class Part:
        held = memory
        __cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (memory.data_ptr() + start, False),
            "version": 3,
            "strides": None,
        }

    return torch.as_tensor(Part(), device=memory.device)


def _bytes_of(tensor: Any, used: int) -> Any:
    import torch

    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage(), tensor.storage_offset() * tensor.element_size(), (used,), (1,))


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

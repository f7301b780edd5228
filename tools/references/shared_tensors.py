"""Memory owned by the judge and mapped by a candidate: inputs, weights and outputs, each between
two margins.

On a CPU a sealed memfd, on a GPU a raw allocation by its IPC handle. The judge never maps memory
made by a candidate.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import mmap
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.tools.gpu.persistent_memory import is_roomy
from kernelwright.tools.hardware import cuda_driver
from kernelwright.tools.report import InfrastructureError

if TYPE_CHECKING:
    import torch

SHARED_MARGIN_BYTES = 1 << 18
"""Bytes before and after each tensor: a smaller access past the end is detected, not fatal."""
_ALIGN = 512
MAX_BYTES_KEPT_ON_CPU = 1 << 28
"""Maximum bytes kept for reuse by a judge on a CPU, which maps new memory cheaply."""
MAX_BLOCKS_KEPT_ON_CPU = 16
"""Maximum number of allocations kept for reuse on a CPU: each holds two descriptors, and 64
judges may be threads of a process.
"""
MANY_BYTES_OF_A_VERDICT = 1 << 30
"""Bytes of a verdict's tensors on a GPU above which unused memory is given back."""
KEPT_GPU_DIVISOR = 8
"""Fraction (1/N) of a GPU's memory kept for reuse; the remainder serves computation."""


@dataclass
class SharedTensor:
    """Tensor in shared memory, between margins."""

    tensor: Any
    """The judge's own view of the memory."""
    memory: Any
    """All bytes, margins included (uint8)."""
    start: int
    """Byte offset of the tensor in `memory`."""
    spec: dict[str, Any]
    """The JSON from which the candidate's process maps the tensor."""
    fds: tuple[int, ...] = ()
    """Descriptor of the tensor's allocation, on a CPU."""

    @property
    def nbytes(self) -> int:
        """Returns the bytes from the tensor's first byte to its last, gaps between its elements included."""
        return self.spec["span"]

    def margins(self) -> tuple[Any, Any]:
        """The bytes before and after the tensor, as uint8 views of `memory`."""
        return self.memory[: self.start], self.memory[self.start + self.nbytes :]

    def fill_margins(self, byte: int) -> None:
        """Sets every byte of both margins."""
        for margin in self.margins():
            margin.fill_(byte)

    def margins_hold(self, byte: int) -> bool:
        """Returns True if nothing was written outside the tensor."""
        before, after = (_holds(margin, byte) for margin in self.margins())
        return bool(before & after)


def _holds(margin: torch.Tensor, byte: int) -> Any:
    """Returns whether all bytes equal a value, as a boolean on the margin's device. Compares
    eight bytes at a time: byte by byte took a tenth of a verdict on a CPU.
    """
    import torch

    odd = -margin.data_ptr() % 8
    whole = odd + (margin.numel() - odd) // 8 * 8
    word = int.from_bytes(bytes([byte]) * 8, "little", signed=True)
    remainder = torch.cat([margin[:odd], margin[whole:]])
    return (margin[odd:whole].view(torch.int64) == word).all() & (remainder == byte).all()


def span(shape: Sequence[int], stride: Sequence[int], itemsize: int) -> int:
    """Bytes from the first to the last element; 0 for an empty tensor. Strides are not negative."""
    if any(n == 0 for n in shape):
        return 0
    return (sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1) * itemsize


class TensorLayout(NamedTuple):
    """Shape, strides and dtype, which determine the memory of a tensor."""

    shape: Sequence[int]
    stride: Sequence[int]
    dtype: torch.dtype
    offset: int = 0
    """Elements of its storage before the first element."""

    @property
    def nbytes(self) -> int:
        """Returns the bytes of its storage; 0 for an empty tensor."""
        reach = span(self.shape, self.stride, self.dtype.itemsize)
        return reach + self.offset * self.dtype.itemsize if reach else 0


GPU_ALLOCATION_BYTES = 1 << 26
"""Bytes of an allocation on a GPU; larger ones are made as they are asked for."""


class Buffers:
    """Hands out shared tensors on a device, and takes all of them back with `release`.

    Memory is kept and reused, up to a bound.
    """

    def __init__(
        self,
        device: str,
        margin: int = SHARED_MARGIN_BYTES,
        keep: int | None = None,
        unmap: Callable[[Sequence[str]], Collection[str]] = list,
    ) -> None:
        """keep: maximum bytes of free buffers to reuse; None: a default for the device.

        unmap: unmaps allocations, by handle, in the other process; returns those no longer mapped
        there. The driver does not define the effect of freeing memory mapped in another process.
        """
        self.device = device
        self._margin = margin
        self._unmap = unmap
        self._keep = _bound(device) if keep is None else keep
        self._free: OrderedDict[int, list[Any]] = OrderedDict()
        self._used: list[tuple[int, Any]] = []

    def new(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> SharedTensor:
        """Returns memory for a tensor; its contents are undefined."""
        return self._placed([TensorLayout(shape, stride, dtype)])[0]

    def together(self, tensors: Sequence[Any]) -> list[SharedTensor]:
        """Allocates memory for each of these tensors; on a CPU in a single allocation, with a
        single descriptor.
        """
        return self.placed(
            [TensorLayout(tuple(t.shape), tuple(t.stride()), t.dtype) for t in tensors]
        )

    def placed(self, forms: Sequence[TensorLayout]) -> list[SharedTensor]:
        """Allocates tensors of these forms, on a CPU in a single allocation."""
        if self.device.startswith("cuda"):
            return [self._placed([form])[0] for form in forms]
        return self._placed(forms) if forms else []

    def _placed(self, forms: Sequence[TensorLayout]) -> list[SharedTensor]:
        """Places tensors one after the other in an allocation, each between its own margins."""
        spans = [form.nbytes for form in forms]
        rooms = [self._margin * 2 + -(-used // _ALIGN) * _ALIGN for used in spans]
        memory, handle, fds = self._take(self._rounded(sum(rooms)))
        placed = []
        begin = 0
        for form, used, room in zip(forms, spans, rooms, strict=True):
            start = begin + self._margin
            flat = memory[start : start + used].view(form.dtype)
            offset = flat.storage_offset() + (form.offset if used else 0)
            tensor = flat.as_strided(tuple(form.shape), tuple(form.stride), offset)
            spec = {
                "shape": list(form.shape),
                "stride": list(form.stride),
                "offset": form.offset,
                "dtype": str(form.dtype).removeprefix("torch."),
                "size": len(memory),
                "start": start,
                "span": used,
            } | handle
            placed.append(
                SharedTensor(tensor, memory[begin : begin + room], self._margin, spec, fds)
            )
            begin += room
        return placed

    def _rounded(self, size: int) -> int:
        """On a GPU the next power of two up to GPU_ALLOCATION_BYTES: every verdict has sizes of
        its own, and an allocation, its way into the other process and its end take milliseconds
        each.
        """
        return (
            1 << (size - 1).bit_length()
            if self.device != "cpu" and size <= GPU_ALLOCATION_BYTES
            else size
        )

    def _take(self, size: int) -> tuple[Any, dict[str, Any], tuple[int, ...]]:
        memory = self._waiting_one(size)
        if memory is None:
            memory = self._map_cuda(size) if self.device.startswith("cuda") else _map_memfd(size)
        self._used.append((size, memory))
        return memory

    def _waiting_one(self, size: int) -> Any:
        """Returns a waiting allocation; None if there is none.

        A size without waiting allocations is removed, because `trim` visits all sizes.
        """
        if size not in self._free:
            return None
        memory = self._free[size].pop()
        if not self._free[size]:
            del self._free[size]
        return memory

    def _map_cuda(self, size: int) -> tuple[Any, dict[str, Any], tuple[int, ...]]:
        import torch

        try:
            address = cuda_driver.allocate(size)
        except cuda_driver.CudaError:
            torch.cuda.empty_cache()
            self.trim()
            address = cuda_driver.allocate(size)
        handle = base64.b64encode(cuda_driver.export(address)).decode()
        return cuda_driver.as_bytes(address, size), {"ipc": handle}, ()

    def give_back_unused_memory(self) -> None:
        """Returns torch's unused cached memory to the device if much is handed out and little is
        free on a GPU, so that a candidate's process can allocate as much as its arguments take.
        """
        if self.device != "cpu" and sum(size for size, _ in self._used) > MANY_BYTES_OF_A_VERDICT:
            import torch

            if not is_roomy(*torch.cuda.mem_get_info(self.device)):
                torch.cuda.empty_cache()

    def release(self) -> None:
        """Makes all memory available again; to be called after the candidate's process has ended."""
        for size, memory in self._used:
            self._free.setdefault(size, []).append(memory)
            self._free.move_to_end(size)
        self._used = []
        self.trim(self._keep)

    @property
    def waiting(self) -> int:
        """Bytes cached and not handed out."""
        return sum(size * len(blocks) for size, blocks in self._free.items())

    def trim(self, keep: int = 0) -> None:
        """Frees waiting memory, least recently used sizes first, until at most `keep` bytes
        remain (on a CPU, in MAX_BLOCKS_KEPT_ON_CPU allocations), and what the other process still has mapped.
        """
        surplus = []
        while self._free and (self.waiting > keep or self._too_many()):
            size = next(iter(self._free))
            surplus.append((size, self._waiting_one(size)))
        if surplus and self.device.startswith("cuda"):
            self._free_on_gpu(surplus)
            return
        for _, (_, _, fds) in surplus:
            for fd in fds:
                os.close(fd)

    def _free_on_gpu(self, surplus: Sequence[tuple[int, Any]]) -> None:
        """Frees allocations unused by the device and the other process; others stay cached."""
        import torch

        torch.cuda.synchronize(self.device)
        unmapped = self._unmap([handle["ipc"] for _, (_, handle, _) in surplus])
        for size, block in surplus:
            memory, handle, _ = block
            if handle["ipc"] in unmapped:
                cuda_driver.free(memory.data_ptr())
            else:
                self._free.setdefault(size, []).append(block)

    def _too_many(self) -> bool:
        return (
            not self.device.startswith("cuda")
            and sum(len(blocks) for blocks in self._free.values()) > MAX_BLOCKS_KEPT_ON_CPU
        )

    def close(self) -> None:
        """Takes everything back and gives all memory back to the system."""
        self.release()
        self.trim()


def _bound(device: str) -> int:
    if not device.startswith("cuda"):
        return MAX_BYTES_KEPT_ON_CPU
    import torch

    return int(torch.cuda.get_device_properties(device).total_memory) // KEPT_GPU_DIVISOR


def _map_memfd(size: int) -> tuple[Any, dict[str, Any], tuple[int, ...]]:
    import torch

    try:
        fd = os.memfd_create("kernelwright", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(
            fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
        mapped = mmap.mmap(fd, size)
    except OSError as error:
        remedy = (
            "raise `ulimit -n` or use fewer --workers"
            if error.errno in (errno.EMFILE, errno.ENFILE)
            else "free memory or use smaller sizes"
        )
        raise InfrastructureError(
            f"no shared memory of {size >> 20} MiB: {error.strerror}; {remedy}"
        ) from error
    return torch.frombuffer(mapped, dtype=torch.uint8), {}, (fd,)

"""Memory that the judge owns and a candidate maps: inputs, weights and the places for outputs, each between two
margins.

On a CPU a sealed memfd, on a GPU a raw allocation by its IPC handle. The judge never maps memory that a candidate made.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import mmap
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.tools.gpu.persistent_memory import is_roomy
from kernelwright.tools.hardware import cuda_driver
from kernelwright.tools.report import InfrastructureError

if TYPE_CHECKING:
    import torch

MARGIN_BYTES = 1 << 18
"""Bytes before and after each tensor: an access past the end that is smaller than this is seen, not fatal."""
_ALIGN = 512
MAX_BYTES_KEPT_ON_CPU = 1 << 28
"""Bytes that wait to be used again by one judge on a CPU, where mapping new ones costs little."""
MAX_BLOCKS_KEPT_ON_CPU = 16
"""Allocations that wait to be used again, on a CPU: each holds two descriptors, and 64 judges may be threads of one
process.
"""
MANY_BYTES_OF_A_VERDICT = 1 << 30
"""Bytes of one verdict's tensors on a GPU."""
KEPT_GPU_DIVISOR = 8
"""On a GPU it is this part of its memory: the rest is for what is computed."""


@dataclass
class SharedTensor:
    """One tensor in shared memory."""

    tensor: Any
    """The judge's own view."""
    memory: Any
    """All bytes, margins included (uint8)."""
    start: int
    """Byte offset of the tensor in `memory`."""
    spec: dict[str, Any]
    """The JSON from which the candidate's process maps the tensor."""
    fds: tuple[int, ...] = ()
    """The descriptor of the allocation that it lies in, on a CPU."""

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
        """Whether nothing was written outside the tensor."""
        before, after = (_holds(margin, byte) for margin in self.margins())
        return bool(before & after)


def _holds(margin: Any, byte: int) -> Any:
    """Whether all bytes are this one, as a boolean on the margin's device. Compared eight at a time: byte by byte it
    took a tenth of a verdict on a CPU.
    """
    import torch

    odd = -margin.data_ptr() % 8
    whole = odd + (margin.numel() - odd) // 8 * 8
    word = int.from_bytes(bytes([byte]) * 8, "little", signed=True)
    rest = torch.cat([margin[:odd], margin[whole:]])
    return (margin[odd:whole].view(torch.int64) == word).all() & (rest == byte).all()


def span(shape: Sequence[int], stride: Sequence[int], itemsize: int) -> int:
    """Bytes from the first to the last element; 0 for an empty tensor. Strides are not negative."""
    if any(n == 0 for n in shape):
        return 0
    return (sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1) * itemsize


class TensorForm(NamedTuple):
    """What a tensor needs of the memory that is made for it."""

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
    """Hands out shared tensors on one device, and takes all of them back with `release`.

    Memory is kept and used again, up to a bound.
    """

    def __init__(self, device: str, margin: int = MARGIN_BYTES, keep: int | None = None) -> None:
        """`keep`: bytes of free buffers that are kept for reuse; None: a default for the device."""
        self.device, self._margin = device, margin
        self._keep = _bound(device) if keep is None else keep
        self._free: OrderedDict[int, list[Any]] = OrderedDict()
        self._used: list[tuple[int, Any]] = []

    def new(self, shape: Sequence[int], stride: Sequence[int], dtype: Any) -> SharedTensor:
        """Returns memory for a tensor; its contents are undefined."""
        return self._placed([TensorForm(shape, stride, dtype)])[0]

    def together(self, tensors: Sequence[Any]) -> list[SharedTensor]:
        """Room for each of these tensors; on a CPU in one allocation, so that there is one descriptor however many
        they are.
        """
        return self.placed(
            [TensorForm(tuple(t.shape), tuple(t.stride()), t.dtype) for t in tensors]
        )

    def placed(self, forms: Sequence[TensorForm]) -> list[SharedTensor]:
        """Room for tensors of these forms, on a CPU in one allocation."""
        if self.device.startswith("cuda"):
            return [self._placed([form])[0] for form in forms]
        return self._placed(forms) if forms else []

    def _placed(self, forms: Sequence[TensorForm]) -> list[SharedTensor]:
        """Places tensors one after the other in one allocation, each between its own margins."""
        spans = [form.nbytes for form in forms]
        rooms = [self._margin * 2 + -(-used // _ALIGN) * _ALIGN for used in spans]
        memory, handle, fds = self._take(self._rounded(sum(rooms)))
        placed, begin = [], 0
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
        """On a GPU the next power of two up to GPU_ALLOCATION_BYTES: every verdict has sizes of its own, and an
        allocation, its way into the other process and its end take milliseconds each.
        """
        return (
            1 << (size - 1).bit_length()
            if self.device != "cpu" and size <= GPU_ALLOCATION_BYTES
            else size
        )

    def _take(self, size: int) -> tuple[Any, dict[str, Any], tuple[int, ...]]:
        taken = self._waiting_one(size)
        if taken is None:
            taken = self._map_cuda(size) if self.device.startswith("cuda") else _map_memfd(size)
        self._used.append((size, taken))
        return taken

    def _waiting_one(self, size: int) -> Any:
        """None where none waits.

        A size of which none is left is forgotten: `trim` goes through those that are there.
        """
        if size not in self._free:
            return None
        taken = self._free[size].pop()
        if not self._free[size]:
            del self._free[size]
        return taken

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
        """On a GPU, where much is handed out and not much is free, what torch's allocator keeps unused here goes back
        to the device: a candidate's process finds room for as much as it was given.
        """
        if self.device != "cpu" and sum(size for size, _ in self._used) > MANY_BYTES_OF_A_VERDICT:
            import torch

            if not is_roomy(*torch.cuda.mem_get_info(self.device)):
                torch.cuda.empty_cache()

    def release(self) -> None:
        """Everything handed out may be handed out again: call it once the candidate's process is dead."""
        for size, taken in self._used:
            self._free.setdefault(size, []).append(taken)
            self._free.move_to_end(size)
        self._used = []
        self.trim(self._keep)

    @property
    def waiting(self) -> int:
        """Bytes that are kept and not handed out."""
        return sum(size * len(kept) for size, kept in self._free.items())

    def trim(self, keep: int = 0) -> None:
        """Gives memory that is not handed out back to the system until no more than `keep` bytes wait (on a CPU, in
        MAX_BLOCKS_KEPT_ON_CPU), the sizes that were used longest ago first.
        """
        while self._free and (self.waiting > keep or self._too_many()):
            memory, _, fds = self._waiting_one(next(iter(self._free)))
            if self.device.startswith("cuda"):
                cuda_driver.free(memory.data_ptr())
            for fd in fds:
                os.close(fd)

    def _too_many(self) -> bool:
        return (
            not self.device.startswith("cuda")
            and sum(len(kept) for kept in self._free.values()) > MAX_BLOCKS_KEPT_ON_CPU
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

"""Restores memory that outlives a call, and poisons memory that a call allocates, before each timed
call.

Nothing on the device may hold results of an earlier call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.nested import tensors_of
from kernelwright.tools.tensor_memory import POISON_BYTE

if TYPE_CHECKING:
    import torch


COPIED_MEMORY_DIVISOR = 3
"""Persistent memory is copied if its total is at most the free memory divided by this."""
ALWAYS_RESTORED_BYTES = 64 << 20
"""Size, in bytes, of the candidate's set-up tensors up to which they are restored before every
timed call, changed or not."""
UNUSED_MEMORY_DIVISOR = 64
"""Unused memory in torch's allocator is returned above the GPU's total memory divided by this."""
ROOMY_SHARE = 2 / 3
"""Free share of the GPU's memory above which unused memory is kept."""
ALLOCATION_GRANULARITY_BYTES = 512
"""Granularity, in bytes, of sizes and addresses in torch's allocator."""


class PersistentTensors:
    """Weights, inputs and set-up tensors, restored before timed calls.

    Tensors that a call changes are restored, small set-up tensors always.

    Calls are timed on copies of the inputs in this process's own memory, as in a user's program.
    The judge's memory mapped here belongs to another allocation, possibly with smaller pages:
    kernels bound by reads are slower on it.
    """

    def __init__(
        self,
        setup_tensors: Sequence[Any],
        judge_tensors: Sequence[Any],
        sets: Sequence[Sequence[Any]],
        *,
        everything: bool = False,
    ) -> None:
        """Copies tensors, if memory permits.

        setup_tensors: made by the candidate's set-up. judge_tensors: the judge's weights. sets: the
        judge's inputs. everything: restores all of them before every call.
        """
        persistent = [
            _storage_bytes(t)
            for t in _first_of_each_storage([*setup_tensors, *judge_tensors])
            if t.is_cuda
        ]
        shared = [_storage_bytes(t) for t in tensors_of(list(sets)) if t.is_cuda and t.numel()]
        self.copied = (
            sum(t.numel() for t in (*persistent, *shared)) <= _free_bytes() // COPIED_MEMORY_DIVISOR
        )
        """True if memory sufficed for the copies; otherwise nothing is restored, and the judge's
        own memory is timed."""
        self.sets = list(sets)
        """Inputs for timed calls."""
        self._pairs: list[tuple[Any, Any]] = []
        """Bytes in use, and their original contents."""
        if self.copied:
            self._pairs = [(t, t.clone()) for t in persistent]
            self.sets = [self._moved(inputs) for inputs in sets]
        self._inputs_from = len(persistent)
        """Index of the first pair of an input; pairs of each set follow those of the previous set.
        """
        self._inputs_of_a_set = max((len(self._pairs) - len(persistent)) // max(len(sets), 1), 1)
        small = (
            sum(_storage_bytes(t).numel() for t in _first_of_each_storage(setup_tensors))
            <= ALWAYS_RESTORED_BYTES
        )
        always = {_storage_address(t) for t in setup_tensors} if small else set()
        self._restored = {
            i for i, (t, _) in enumerate(self._pairs) if everything or _storage_address(t) in always
        }

    def _moved(self, value: object) -> Any:
        """Returns the inputs with tensors in this process's memory."""
        import torch

        if isinstance(value, dict):
            return {k: self._moved(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._moved(v) for v in value)
        if not isinstance(value, torch.Tensor) or not value.is_cuda or not value.numel():
            return value
        original = _storage_bytes(value)
        local = original.clone()
        self._pairs.append((local, original))
        flat = torch.empty(0, dtype=value.dtype, device=value.device)
        return flat.set_(
            local.untyped_storage(), value.storage_offset(), value.shape, value.stride()
        )

    def note_changes(self) -> None:
        """Marks tensors that a first call on the first set changed, for restoration in all sets."""
        for index in self._different():
            step = self._inputs_of_a_set if index >= self._inputs_from else len(self._pairs)
            self._restored |= set(range(index, len(self._pairs), step))

    def restore(self) -> None:
        """Restores changed tensors, on the current stream."""
        for index in self._restored:
            tensor, before = self._pairs[index]
            tensor.copy_(before)

    def disturbed(self) -> bool:
        """Returns True if a tensor that is not restored has changed. Waits for the device."""
        return bool(self._different())

    def _different(self) -> set[int]:
        import torch

        waiting = [(i, pair) for i, pair in enumerate(self._pairs) if i not in self._restored]
        return {
            i
            for i, (tensor, before) in waiting
            if not torch.equal(_as_words(tensor), _as_words(before))
        }


def give_back_unused() -> None:
    """Returns unused memory of torch's allocator to the device, if it is large and free memory is
    scarce.

    Freeing and allocating gigabytes again would cost more than it saves.
    """
    import torch

    unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    free, total = torch.cuda.mem_get_info()
    if unused > total // UNUSED_MEMORY_DIVISOR and not is_roomy(free, total):
        torch.cuda.empty_cache()


def is_roomy(free: int, total: int) -> bool:
    """Returns True if so many bytes of a GPU are free that none need be returned for others."""
    return free >= ROOMY_SHARE * total


def _free_bytes() -> int:
    """Returns the device's free bytes, including unused memory of torch's allocator."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


def merge_ranges(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins overlapping allocations, given as (address, size), each rounded up to whole blocks.

    Adjacent ranges stay separate: they may belong to two allocations of the driver, and the driver
    does not write across such a border. Example: [(0, 100), (256, 512), (1024, 512)] gives [(0,
    768), (1024, 512)].
    """
    merged: list[tuple[int, int]] = []
    for address, used in sorted(ranges):
        nbytes = -(-used // ALLOCATION_GRANULARITY_BYTES) * ALLOCATION_GRANULARITY_BYTES
        if merged and address < sum(merged[-1]):
            begin, before = merged[-1]
            merged[-1] = (begin, max(before, address + nbytes - begin))
        else:
            merged.append((address, nbytes))
    return merged


def poison(ranges: Sequence[tuple[int, int]]) -> None:
    """Fills device memory with POISON_BYTE, which yields NaN as a float, on the current stream."""
    if not ranges:
        return
    import ctypes

    import torch

    from kernelwright.tools.gpu.cuda_kernels import check, driver

    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    for address, nbytes in ranges:
        start, size = ctypes.c_uint64(address), ctypes.c_size_t(nbytes)
        check(
            driver().cuMemsetD8Async(start, ctypes.c_ubyte(POISON_BYTE), size, stream),
            "cuMemsetD8Async",
        )


def poison_free(ranges: Sequence[tuple[int, int]]) -> None:
    """Poisons memory that has returned to torch's allocator: allocates equal sizes, fills and frees
    them."""
    import torch

    blocks = [torch.empty(nbytes, dtype=torch.uint8, device="cuda") for _, nbytes in ranges]
    for block in blocks:
        block.fill_(POISON_BYTE)


def _storage_address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _first_of_each_storage(tensors: Sequence[Any]) -> list[Any]:
    return list({_storage_address(t): t for t in tensors if t.numel()}.values())


def _storage_bytes(tensor: torch.Tensor) -> Any:
    """Returns all bytes of a tensor's storage."""
    import torch

    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(
        storage, 0, (storage.nbytes(),), (1,)
    )


def _as_words(flat: torch.Tensor) -> Any:
    """Views bytes as 64-bit words if aligned: eight times as fast to compare."""
    import torch

    return flat.view(torch.int64) if flat.numel() % 8 == 0 and flat.data_ptr() % 8 == 0 else flat

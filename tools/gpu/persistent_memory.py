"""Memory that outlives a call, and memory that a call allocates, put back before every timed call: nothing on the
device may remember an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelwright.tools.nested import tensors_of
from kernelwright.tools.tensor_memory import POISON_BYTE

COPIED_MEMORY_DIVISOR = 3
"""Memory that outlives a call is copied where all of it takes no more than this part of what is free."""
ALWAYS_RESTORED_BYTES = 64 << 20
"""Bytes of tensors that the candidate's own set-up made: so many are restored before every timed call, whether they
change or not.
"""
UNUSED_MEMORY_DIVISOR = 64
"""The part of the GPU's memory that torch's allocator may keep unused in one process."""
ROOMY_SHARE = 2 / 3
"""While so much of the GPU's memory is free, unused memory is kept."""
ALLOCATION_GRANULARITY_BYTES = 512
"""Bytes, of which torch's allocator gives a multiple, from an address that is one."""


class PersistentTensors:
    """Weights, inputs and set-up tensors.

    What a call changes is restored before every timed one; small set-up tensors always are.

    Calls are timed on copies of the inputs in this process's own memory, as a candidate's inputs would lie there. What
    the judge has mapped here is another allocation's memory, whose pages may be smaller: kernels that read much and
    wait for it are slower on it.
    """

    def __init__(
        self,
        own: Sequence[Any],
        given: Sequence[Any],
        sets: Sequence[Sequence[Any]],
        *,
        everything: bool = False,
    ) -> None:
        """own: made by the candidate's set-up.

        given: the judge's weights. sets: the judge's inputs. everything: restore all of it before every call.
        """
        kept = [_storage_bytes(t) for t in _first_of_each_storage([*own, *given]) if t.is_cuda]
        shared = [_storage_bytes(t) for t in tensors_of(list(sets)) if t.is_cuda and t.numel()]
        self.copied = (
            sum(t.numel() for t in (*kept, *shared)) <= _free_bytes() // COPIED_MEMORY_DIVISOR
        )
        """Whether there was room for the copies: without them nothing is restored, and the judge's own memory is
        timed.
        """
        self.sets = list(sets)
        """What to time on."""
        self._pairs: list[tuple[Any, Any]] = []
        """Bytes in use, and what they were."""
        if self.copied:
            self._pairs = [(t, t.clone()) for t in kept]
            self.sets = [self._moved(inputs) for inputs in sets]
        self._inputs_from = len(kept)
        """Index of the first pair that is an input's; the pairs of each set follow those of the one before."""
        self._inputs_of_a_set = max((len(self._pairs) - len(kept)) // max(len(sets), 1), 1)
        small = (
            sum(_storage_bytes(t).numel() for t in _first_of_each_storage(own))
            <= ALWAYS_RESTORED_BYTES
        )
        always = {_storage_address(t) for t in own} if small else set()
        self._restored = {
            i for i, (t, _) in enumerate(self._pairs) if everything or _storage_address(t) in always
        }

    def _moved(self, value: Any) -> Any:
        """Returns the same inputs with tensors in memory of this process."""
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
        """After a first call on the first set: what it changed is restored from now on, in the other sets too."""
        for index in self._different():
            step = self._inputs_of_a_set if index >= self._inputs_from else len(self._pairs)
            self._restored |= set(range(index, len(self._pairs), step))

    def restore(self) -> None:
        """Puts back what calls have changed, on the current stream."""
        for index in self._restored:
            tensor, before = self._pairs[index]
            tensor.copy_(before)

    def disturbed(self) -> bool:
        """Whether something that is not restored is not what it was. Waits for the device."""
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
    """Memory that torch's allocator keeps unused goes back to the device where it is much, and where not much is free:
    giving gigabytes back and taking them again costs more than what they are for.
    """
    import torch

    unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    free, total = torch.cuda.mem_get_info()
    if unused > total // UNUSED_MEMORY_DIVISOR and not is_roomy(free, total):
        torch.cuda.empty_cache()


def is_roomy(free: int, total: int) -> bool:
    """Whether so many bytes of a GPU are free that nothing need be given back for others."""
    return free >= ROOMY_SHARE * total


def _free_bytes() -> int:
    """Returns the free bytes of the device, with what torch's allocator holds unused."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


def merge_ranges(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Addresses and bytes of allocations, up to the end of each one's last block, with what overlaps joined.

    Those that only touch stay apart: they may lie in two allocations of the driver, across which it does not write.
    """
    found: list[tuple[int, int]] = []
    for address, used in sorted(ranges):
        nbytes = -(-used // ALLOCATION_GRANULARITY_BYTES) * ALLOCATION_GRANULARITY_BYTES
        if found and address < sum(found[-1]):
            begin, before = found[-1]
            found[-1] = (begin, max(before, address + nbytes - begin))
        else:
            found.append((address, nbytes))
    return found


def poison(ranges: Sequence[tuple[int, int]]) -> None:
    """Fills device memory with a byte that makes NaN of floats, on the current stream."""
    if not ranges:
        return
    import ctypes

    import torch

    from kernelwright.tools.gpu.cuda_kernels import check, driver

    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    for address, nbytes in ranges:
        place, size = ctypes.c_uint64(address), ctypes.c_size_t(nbytes)
        check(
            driver().cuMemsetD8Async(place, ctypes.c_ubyte(POISON_BYTE), size, stream),
            "cuMemsetD8Async",
        )


def poison_free(ranges: Sequence[tuple[int, int]]) -> None:
    """The same for memory that has gone back to torch's allocator: as much is taken from it again, filled and given
    back.
    """
    import torch

    held = [torch.empty(nbytes, dtype=torch.uint8, device="cuda") for _, nbytes in ranges]
    for one in held:
        one.fill_(POISON_BYTE)


def _storage_address(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _first_of_each_storage(tensors: Sequence[Any]) -> list[Any]:
    return list({_storage_address(t): t for t in tensors if t.numel()}.values())


def _storage_bytes(tensor: Any) -> Any:
    """Returns all bytes of the storage that a tensor lies in."""
    import torch

    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(
        storage, 0, (storage.nbytes(),), (1,)
    )


def _as_words(flat: Any) -> Any:
    """Views bytes as whole words where they divide: eight times as fast to compare."""
    import torch

    return flat.view(torch.int64) if flat.numel() % 8 == 0 and flat.data_ptr() % 8 == 0 else flat

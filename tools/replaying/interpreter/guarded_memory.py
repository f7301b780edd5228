"""Checks every memory access of an interpreted kernel against the tensors of the call, before the
access happens.

The interpreter reads and writes real addresses of this process. A write outside of every tensor
ends the call. A read outside returns poison and is noted; a read far outside, at which a GPU may
have no memory at all, ends the call.

Example: a kernel loads 8 floats from a tensor of 6 without a mask. Lanes 0 to 5 get the tensor's
values, lanes 6 and 7 get NaN (bytes 0xFF), and the call reports "k reads outside of its tensors,
0 bytes past the end of a tensor of 24 bytes". A store by the same lanes raises OutOfBounds, and
nothing is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.tools.replaying.interpreter.extents import Extents, ReadElements
from kernelwright.tools.replaying.interpreter.open_choices import store_winners
from kernelwright.tools.replaying.interpreter.races import MemoryOrder, Races
from kernelwright.tools.report import Fault
from kernelwright.tools.tensor_memory import POISON_BYTE

if TYPE_CHECKING:
    pass


class OutOfBounds(BaseException):
    """A kernel leaves its tensors.

    Not an Exception: a device function's wrapper turns those into errors of the kernel.
    """

    fault = Fault.OUT_OF_BOUNDS


@dataclass
class Guard:
    """Checks and performs the memory accesses of one launch."""

    extents: Extents
    kernel: str
    """Name of the kernel, for messages."""
    races: Races | None = None
    """Tracker of unordered accesses by different programs; None for a single program."""
    turn: Callable[[], None] | None = None
    """Lets another program run; None unless programs are interleaved."""
    read_outside: list[str] = field(default_factory=list)

    def load(
        self,
        addresses: np.ndarray,
        mask: np.ndarray,
        other: np.ndarray,
        dtype: np.dtype,
        volatile: bool,
        acquires: bool = False,
    ) -> Any:
        """Returns the values at the addresses with a true mask, `other` elsewhere.

        volatile: whether other programs may run first, as at a volatile or atomic load. acquires:
        whether the program is ordered after the release which wrote the loaded value.
        """
        size = dtype.itemsize
        # Usual case: all lanes, masked ones too, lie in a single storage. Else look at active lanes only.
        storage = self._one_storage(addresses, size)
        active: Any = None
        if storage < 0:
            active = addresses[mask]
            if not active.size:
                return other
            storage = self._one_storage(active, size)
        self._note_read(storage, addresses, mask, size, active)
        if reads:
            reads[-1].note(addresses, mask, size)
        if self.races is not None:
            self._before_reading(storage, addresses, mask, volatile)
        if storage < 0:
            return self._scattered_load(addresses, mask, other, dtype)
        loaded = _load_values(addresses, mask, other, dtype)
        if self.races is None:
            return loaded
        stale = self.races.is_written(storage) and self._grow_stale(
            storage, addresses, mask, loaded, dtype, volatile
        )
        if acquires and not stale:
            self.races.acquire(addresses[mask])
        return loaded

    def store(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray) -> None:
        """Writes the values at the addresses with a true mask. Raises OutOfBounds if an address
        lies outside of every tensor.
        """
        size = values.dtype.itemsize
        storage = self._one_storage(addresses, size)
        active: Any = None
        if storage < 0:
            # Masked lanes may point anywhere.
            active = addresses[mask]
            if not active.size:
                return
            storage = self._one_storage(active, size)
        if self.races is None:
            if storage < 0:
                self._storages_to_write(active, size)
            store_values(addresses, values, mask)
            return
        active = addresses[mask] if active is None else active
        if active.size:
            # The content before the first write is saved: later reads may return it.
            with_storages = self._before_writing(active, size, storage)
            self._let_others_update(active, with_storages)
            store_values(addresses, values, mask)
            self._after_writing(active, with_storages)
            self.races.now.stored_in_parallel |= active.size > 1

    def barrier(self) -> None:
        """All threads of the program wait for each other."""
        if self.races is not None:
            self.races.now.stored_in_parallel = False

    def acquire(self, addresses: np.ndarray) -> None:
        """Orders the program after earlier releases of these addresses."""
        if self.races is not None:
            self.races.acquire(addresses.reshape(-1))

    def atomic(
        self,
        addresses: np.ndarray,
        mask: np.ndarray | None,
        size: int,
        order: MemoryOrder,
        operation: Callable[[], Any],
    ) -> Any:
        """Returns the result of `operation`, which reads and writes `size` bytes at each active
        address.

        If the order acquires, the program sees the writes of programs which released these
        addresses before. Raises OutOfBounds.
        """
        active = addresses.reshape(-1) if mask is None else addresses[mask]
        if not active.size:
            return operation()
        if reads:
            reads[-1].note(active, slice(None), size)
        if self.races is not None:
            self._let_others_run()
            if order.acquires:
                self.races.acquire(active)
            written = self._before_writing(active, size, self._one_storage(active, size))
            result = operation()
            self._after_writing(active, written)
            for storage_index, lanes in written:
                self.races.updated(storage_index, active if lanes is None else active[lanes])
            if order.releases:
                self.races.release(active)
            return result
        if self._one_storage(active, size) < 0:
            self._storages_to_write(active, size)
        return operation()

    def _note_read(
        self,
        storage: int,
        addresses: np.ndarray,
        mask: np.ndarray,
        size: int,
        active: np.ndarray | None,
    ) -> None:
        """Receives every load before it happens. storage: index of the storage of all active
        addresses; -1 if several. active: the active addresses, if computed already.
        """

    # ------------------------------------------------------------------ where
    def _one_storage(self, addresses: np.ndarray, size: int) -> int:
        """Returns the index of the storage which holds all of the addresses; -1 if there is none."""
        if addresses.size == 1:
            low = high = addresses.item()
        elif addresses.size:
            low = int(np.minimum.reduce(addresses, None))
            high = int(np.maximum.reduce(addresses, None))
        else:
            return -1
        return self.extents.holding(low, high + size)

    def _storages_to_write(self, active: np.ndarray, size: int) -> Any:
        storages = self.extents.storage_indices(active, size)
        if (storages < 0).any():
            raise OutOfBounds(
                f"{self.kernel} writes outside of its tensors, {self._describe_position(active[storages < 0])}"
            )
        return storages

    def _describe_position(self, outside: np.ndarray) -> str:
        return self.extents.described(int(outside.reshape(-1)[0]))

    def _scattered_load(
        self, addresses: np.ndarray, mask: np.ndarray, other: np.ndarray, dtype: np.dtype
    ) -> Any:
        """Loads for lanes whose addresses lie in several storages, or outside of all."""
        storages = np.full(addresses.shape, -1)
        storages[mask] = self.extents.storage_indices(addresses[mask], dtype.itemsize)
        outside = mask & (storages < 0)
        if outside.any():
            if self.extents.far(addresses[outside]):
                raise OutOfBounds(f"{self.kernel} reads far outside of its tensors")
            if not self.read_outside:
                position = self._describe_position(addresses[outside])
                self.read_outside.append(f"{self.kernel} reads outside of its tensors, {position}")
            other = np.where(outside, _poison(dtype), other)
            mask = mask & ~outside
        loaded = _load_values(addresses, mask, other, dtype)
        if self.races is not None:
            for storage in np.unique(storages[storages >= 0]).tolist():
                if self.races.is_written(storage):
                    self._grow_stale(storage, addresses, storages == storage, loaded, dtype, False)
        return loaded

    # ------------------------------------------------------------------ other programs
    def _let_others_run(self) -> None:
        assert self.races is not None
        self.races.wait()
        if self.turn is not None:
            self.turn()

    def _before_reading(
        self, storage: int, addresses: np.ndarray, mask: np.ndarray, volatile: bool
    ) -> None:
        assert self.races is not None
        if volatile:
            self._let_others_run()
        elif (
            storage >= 0
            and self.races.reads_overwritten(storage, addresses[mask])
            and self.turn is not None
        ):
            self.turn()

    def _before_writing(self, active: np.ndarray, size: int, storage: int) -> list[tuple[int, Any]]:
        """Storages and which of the active addresses lie in each (None: all)."""
        assert self.races is not None
        storages: list[tuple[int, Any]] = [(storage, None)]
        if storage < 0:
            indices = self._storages_to_write(active, size)
            storages = [(index, indices == index) for index in np.unique(indices).tolist()]
        for index, _ in storages:
            self.races.before_write(index, size)
        return storages

    def _let_others_update(self, active: np.ndarray, storages: list[tuple[int, Any]]) -> None:
        assert self.races is not None
        meets = [
            self.races.meets_others(index, active if lanes is None else active[lanes])
            for index, lanes in storages
        ]
        if any(meets) and self.turn is not None:
            self.turn()

    def _after_writing(self, active: np.ndarray, storages: list[tuple[int, Any]]) -> None:
        assert self.races is not None
        for storage, lanes in storages:
            self.races.written(storage, active if lanes is None else active[lanes])

    def _grow_stale(
        self,
        storage: int,
        addresses: np.ndarray,
        mask: np.ndarray,
        loaded: np.ndarray,
        dtype: np.dtype,
        volatile: bool,
    ) -> bool:
        """Replaces lanes written by another program with their content before the launch, if the
        seed says so.

        Returns whether a lane was replaced.
        """
        assert self.races is not None
        stale = self.races.stale(storage, addresses[mask], dtype, volatile)
        if stale is None:
            return False
        lanes, old = stale
        stale_lanes = np.flatnonzero(mask.reshape(-1))[lanes]
        loaded.reshape(-1)[stale_lanes] = old
        return bool(lanes.size)


def _poison(dtype: np.dtype) -> Any:
    if dtype == np.bool_:
        return np.True_
    return np.frombuffer(bytes([POISON_BYTE]) * dtype.itemsize, dtype)[0]


def _load_values(
    addresses: np.ndarray, mask: np.ndarray, other: np.ndarray, dtype: np.dtype
) -> Any:
    """Loads by Triton's own code; loads active lanes only if few are active."""
    if not _is_sparse(mask):
        return _memory().load(addresses, mask, other, dtype)
    active = addresses[mask]
    lanes = np.broadcast_to(np.True_, active.shape)
    filling = np.broadcast_to(dtype.type(0), active.shape)
    loaded = np.array(np.broadcast_to(other, addresses.shape), dtype)
    loaded[mask] = _memory().load(active, lanes, filling, dtype)
    return loaded


def store_values(addresses: np.ndarray, values: np.ndarray, mask: np.ndarray) -> None:
    """Stores by Triton's own code; stores active lanes only if few are active. The call's seed
    decides which of several lanes with the same address wins.
    """
    if _is_sparse(mask):
        addresses = addresses[mask]
        values = values[mask]
        mask = mask[mask]
    _memory().store(addresses, values, mask)
    store_winners.let_others_win(_memory(), addresses, values, mask)


def _is_sparse(mask: np.ndarray) -> bool:
    return bool(mask.size >= SPARSE_LANES and np.count_nonzero(mask) * 4 < mask.size)


SPARSE_LANES = 4096
"""Number of lanes below which active lanes are not counted."""

_native: Any = None


def _memory() -> Any:
    """Triton's own loads and stores of addresses."""
    global _native
    if _native is None:
        from triton.runtime import interpreter

        _native = interpreter._interpreter
    return _native


current: list[Guard] = []
"""Guard of the running launch."""
reads: list[ReadElements] = []
"""Recorder of every load of the running call, if the call is watched."""


@contextlib.contextmanager
def noting(coverage: ReadElements | None) -> Iterator[None]:
    """Reports every load to `coverage` until the block ends. None: does nothing."""
    if coverage is not None:
        reads.append(coverage)
    try:
        yield
    finally:
        reads.clear()

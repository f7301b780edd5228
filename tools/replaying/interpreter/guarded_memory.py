"""Every access to memory that an interpreted kernel makes: checked against the tensors of the call before it happens.

The interpreter reads and writes addresses as a GPU would, and they are addresses of this process. A write outside of
every tensor ends the call. A read outside is answered with poison and noted; far outside, where a GPU may have no
memory at all, it ends the call too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from kernelwright.tools.replaying.interpreter.extents import Extents, ReadElements
from kernelwright.tools.replaying.interpreter.open_choices import store_winners
from kernelwright.tools.replaying.interpreter.races import MemoryOrder, Races
from kernelwright.tools.report import Fault

POISON_BYTE = 0xFF


class OutOfBounds(BaseException):
    """A kernel leaves its tensors.

    Not an Exception: a device function's wrapper turns those into errors of the kernel.
    """

    fault = Fault.OUT_OF_BOUNDS


@dataclass
class Guard:
    """The memory of one launch."""

    extents: Extents
    kernel: str
    """Its name."""
    races: Races | None = None
    """None where there is one program."""
    turn: Callable[[], None] | None = None
    """Lets another program run, where programs run in turns."""
    read_outside: list[str] = field(default_factory=list)

    def load(
        self,
        addresses: Any,
        mask: Any,
        other: Any,
        dtype: Any,
        volatile: bool,
        acquires: bool = False,
    ) -> Any:
        """The values at the addresses where the mask holds, `other` elsewhere. volatile: whether other programs are
        looked for, as by a volatile or an atomic load. acquires: whether it is ordered after what it finds.
        """
        size = dtype.itemsize
        storage = self._one_storage(addresses, size)
        active = None
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
        loaded = _loaded(addresses, mask, other, dtype)
        if self.races is None:
            return loaded
        stale = self.races.is_written(storage) and self._grow_stale(
            storage, addresses, mask, loaded, dtype, volatile
        )
        if acquires and not stale:
            self.races.acquire(addresses[mask])
        return loaded

    def store(self, addresses: Any, values: Any, mask: Any) -> None:
        """Writes the values where the mask holds. Raises OutOfBounds where that is outside of every tensor."""
        size = values.dtype.itemsize
        storage = self._one_storage(addresses, size)
        active = None
        if storage < 0:
            active = addresses[mask]
            if not active.size:
                return
            storage = self._one_storage(active, size)
        if self.races is None:
            if storage < 0:
                self._places_to_write(active, size)
            _stored(addresses, values, mask)
            return
        active = addresses[mask] if active is None else active
        if active.size:
            with_storages = self._before_writing(active, size, storage)
            self._let_others_update(active, with_storages)
            _stored(addresses, values, mask)
            self._after_writing(active, with_storages)
            self.races.now.stored_in_parallel |= active.size > 1

    def barrier(self) -> None:
        """All threads of the program wait for each other."""
        if self.races is not None:
            self.races.now.stored_in_parallel = False

    def acquire(self, addresses: Any) -> None:
        """Orders the program after those that released these addresses."""
        if self.races is not None:
            self.races.acquire(addresses.reshape(-1))

    def atomic(
        self,
        addresses: Any,
        mask: Any | None,
        size: int,
        order: MemoryOrder,
        operation: Callable[[], Any],
    ) -> Any:
        """The result of `operation`, which reads and writes `size` bytes at each active address. Where it acquires, the
        program sees what those wrote that released the same addresses before it. Raises OutOfBounds.
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
            for one, lanes in written:
                self.races.updated(one, active if lanes is None else active[lanes])
            if order.releases:
                self.races.release(active)
            return result
        if self._one_storage(active, size) < 0:
            self._places_to_write(active, size)
        return operation()

    def _note_read(
        self, storage: int, addresses: Any, mask: Any, size: int, active: Any | None
    ) -> None:
        """Is told of every load before it is made. storage: that all active addresses lie in; -1 where there is none.
        active: these, where they are known.
        """

    # ------------------------------------------------------------------ where
    def _one_storage(self, addresses: Any, size: int) -> int:
        """Returns the storage that all of the addresses lie in; -1 where there is none."""
        if addresses.size == 1:
            low = high = addresses.item()
        elif addresses.size:
            low, high = (
                int(np.minimum.reduce(addresses, None)),
                int(np.maximum.reduce(addresses, None)),
            )
        else:
            return -1
        return self.extents.holding(low, high + size)

    def _places_to_write(self, active: Any, size: int) -> Any:
        places = self.extents.places(active, size)
        if (places < 0).any():
            raise OutOfBounds(
                f"{self.kernel} writes outside of its tensors, {self._where(active[places < 0])}"
            )
        return places

    def _where(self, outside: Any) -> str:
        return self.extents.described(int(outside.reshape(-1)[0]))

    def _scattered_load(self, addresses: Any, mask: Any, other: Any, dtype: Any) -> Any:
        """Loads for lanes whose addresses lie in several storages, or outside of all."""
        places = np.full(addresses.shape, -1)
        places[mask] = self.extents.places(addresses[mask], dtype.itemsize)
        outside = mask & (places < 0)
        if outside.any():
            if self.extents.far(addresses[outside]):
                raise OutOfBounds(f"{self.kernel} reads far outside of its tensors")
            if not self.read_outside:
                where = self._where(addresses[outside])
                self.read_outside.append(f"{self.kernel} reads outside of its tensors, {where}")
            other = np.where(outside, _poison(dtype), other)
            mask = mask & ~outside
        loaded = _loaded(addresses, mask, other, dtype)
        if self.races is not None:
            for storage in np.unique(places[places >= 0]).tolist():
                if self.races.is_written(storage):
                    self._grow_stale(storage, addresses, places == storage, loaded, dtype, False)
        return loaded

    # ------------------------------------------------------------------ other programs
    def _let_others_run(self) -> None:
        assert self.races is not None
        self.races.wait()
        if self.turn is not None:
            self.turn()

    def _before_reading(self, storage: int, addresses: Any, mask: Any, volatile: bool) -> None:
        assert self.races is not None
        if volatile:
            self._let_others_run()
        elif (
            storage >= 0
            and self.races.reads_overwritten(storage, addresses[mask])
            and self.turn is not None
        ):
            self.turn()

    def _before_writing(self, active: Any, size: int, storage: int) -> list[tuple[int, Any]]:
        """Storages and which of the active addresses lie in each (None: all)."""
        assert self.races is not None
        found: list[tuple[int, Any]] = [(storage, None)]
        if storage < 0:
            places = self._places_to_write(active, size)
            found = [(one, places == one) for one in np.unique(places).tolist()]
        for one, _ in found:
            self.races.before_write(one, size)
        return found

    def _let_others_update(self, active: Any, found: list[tuple[int, Any]]) -> None:
        assert self.races is not None
        meets = [
            self.races.meets_others(one, active if lanes is None else active[lanes])
            for one, lanes in found
        ]
        if any(meets) and self.turn is not None:
            self.turn()

    def _after_writing(self, active: Any, found: list[tuple[int, Any]]) -> None:
        assert self.races is not None
        for storage, lanes in found:
            self.races.written(storage, active if lanes is None else active[lanes])

    def _grow_stale(
        self, storage: int, addresses: Any, mask: Any, loaded: Any, dtype: Any, volatile: bool
    ) -> bool:  # fmt: skip
        """Puts what was there before the launch into the lanes that another program has written meanwhile, where the
        seed says so. Gives whether it did.
        """
        assert self.races is not None
        found = self.races.stale(storage, addresses[mask], dtype, volatile)
        if found is None:
            return False
        lanes, old = found
        places = np.flatnonzero(mask.reshape(-1))[lanes]
        loaded.reshape(-1)[places] = old
        return bool(lanes.size)


def _poison(dtype: Any) -> Any:
    if dtype == np.bool_:
        return np.True_
    return np.frombuffer(bytes([POISON_BYTE]) * dtype.itemsize, dtype)[0]


def _loaded(addresses: Any, mask: Any, other: Any, dtype: Any) -> Any:
    """What lies there, by Triton's own loads; where few lanes are active, of those alone."""
    if not _is_sparse(mask):
        return _memory().load(addresses, mask, other, dtype)
    active = addresses[mask]
    lanes, filling = (
        np.broadcast_to(np.True_, active.shape),
        np.broadcast_to(dtype.type(0), active.shape),
    )
    loaded = np.array(np.broadcast_to(other, addresses.shape), dtype)
    loaded[mask] = _memory().load(active, lanes, filling, dtype)
    return loaded


def _stored(addresses: Any, values: Any, mask: Any) -> None:
    """Stores as Triton does; where few lanes are active, those alone. Of several lanes with one address, which of them
    wins follows from the seed of the call.
    """
    if _is_sparse(mask):
        addresses, values, mask = addresses[mask], values[mask], mask[mask]
    _memory().store(addresses, values, mask)
    store_winners.let_others_win(_memory(), addresses, values, mask)


def _is_sparse(mask: Any) -> bool:
    return mask.size >= SPARSE_LANES and np.count_nonzero(mask) * 4 < mask.size


SPARSE_LANES = 4096
"""Lanes of an access below which it is not looked how many are active."""

_native: Any = None


def _memory() -> Any:
    """Triton's own loads and stores of addresses."""
    global _native
    if _native is None:
        from triton.runtime import interpreter

        _native = interpreter._interpreter
    return _native


current: list[Guard] = []
"""The guard of the launch that is running."""
reads: list[ReadElements] = []
"""Told of every load of the call that is running, where that call is watched."""


@contextlib.contextmanager
def noting(coverage: ReadElements | None) -> Iterator[None]:
    """Tells `coverage` of every load until the block ends; nothing where it is None."""
    if coverage is not None:
        reads.append(coverage)
    try:
        yield
    finally:
        reads.clear()


def install() -> None:
    """Replaces what touches memory in the interpreter's builder. Once in a process."""
    from triton.runtime import interpreter

    builder, handle, np_dtype = (
        interpreter.InterpreterBuilder,
        interpreter.TensorHandle,
        interpreter._get_np_dtype,
    )

    def masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
        element = ptrs.get_element_ty()
        dtype = np_dtype(element)
        filling = np.zeros(ptrs.data.shape, dtype) if other is None else other.data
        volatile = bool(named.get("is_volatile", rest[-1] if rest else False))
        addresses, lanes, filling = _same_shape(ptrs.data, _boolean(mask.data), filling)
        return handle(current[-1].load(addresses, lanes, filling, dtype, volatile), element)

    def masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> None:
        addresses, lanes, values = _same_shape(ptrs.data, _boolean(mask.data), value.data)
        current[-1].store(addresses, values, lanes)

    def barrier(self: Any) -> None:
        current[-1].barrier()

    builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
    builder.create_barrier = barrier
    _install_atomic_updates()
    if hasattr(builder, "create_atomic_poll"):  # Triton 3.6 has none of the three
        _install_atomic_accesses()


def _install_atomic_updates() -> None:
    """`tl.atomic_add` and its like, and `tl.atomic_cas`."""
    from triton.runtime import interpreter

    from kernelwright.tools.replaying.interpreter.number_formats.bfloat16 import add_atomically

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    adding = interpreter._ir.ATOMIC_OP.FADD
    original_rmw, original_cas = builder.create_atomic_rmw, builder.create_atomic_cas

    def atomic_rmw(
        self: Any, operation: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any
    ) -> Any:
        addresses, lanes, _ = _same_shape(ptr.data, _boolean(mask.data), val.data)
        size = val.data.dtype.itemsize

        def perform() -> Any:
            if operation == adding and val.dtype.scalar.name == "bf16":
                values = np.broadcast_to(val.data, addresses.shape)
                return handle(add_atomically(addresses, lanes, values), val.dtype.scalar)
            return original_rmw(self, operation, ptr, val, mask, sem, scope)

        return current[-1].atomic(addresses, lanes, size, MemoryOrder.of(sem), perform)

    def atomic_cas(self: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        addresses, _, _ = _same_shape(ptr.data, cmp.data, val.data)
        size = val.data.dtype.itemsize
        swap = partial(original_cas, self, ptr, cmp, val, sem, scope)
        return current[-1].atomic(addresses, None, size, MemoryOrder.of(sem), swap)

    builder.create_atomic_rmw, builder.create_atomic_cas = atomic_rmw, atomic_cas


def _install_atomic_accesses() -> None:
    """`tl.atomic_load`, `tl.atomic_store` and `tl.atomic_poll`."""
    from triton.runtime import interpreter

    builder, handle, np_dtype = (
        interpreter.InterpreterBuilder,
        interpreter.TensorHandle,
        interpreter._get_np_dtype,
    )
    original_poll = builder.create_atomic_poll

    def atomic_load(self: Any, ptr: Any, mask: Any, sem: Any, scope: Any) -> Any:
        element = ptr.get_element_ty()
        dtype = np_dtype(element)
        addresses, lanes, filling = _same_shape(
            ptr.data, _boolean(mask.data), np.zeros(ptr.data.shape, dtype)
        )
        acquires = MemoryOrder.of(sem).acquires
        return handle(current[-1].load(addresses, lanes, filling, dtype, True, acquires), element)

    def atomic_store(self: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        addresses, lanes, values = _same_shape(ptr.data, _boolean(mask.data), val.data)
        size = values.dtype.itemsize
        current[-1].atomic(
            addresses, lanes, size, MemoryOrder.of(sem), lambda: _stored(addresses, values, lanes)
        )

    def atomic_poll(
        self: Any, ptr: Any, expected: Any, timeout_ns: Any, sem: Any, scope: Any
    ) -> Any:
        matched = original_poll(self, ptr, expected, timeout_ns, sem, scope)
        if MemoryOrder.of(sem).acquires:
            current[-1].acquire(ptr.data[matched.data])
        return matched

    builder.create_atomic_load, builder.create_atomic_store = atomic_load, atomic_store
    builder.create_atomic_poll = atomic_poll


def _boolean(mask: Any) -> Any:
    return mask if mask.dtype == np.bool_ else mask.astype(np.bool_)


def _same_shape(addresses: Any, second: Any, third: Any) -> tuple[Any, Any, Any]:
    """Addresses, mask and values. Triton's own code believes that they have as many elements."""
    if addresses.shape == second.shape == third.shape:
        return addresses, second, third
    if addresses.size == second.size == third.size:
        return addresses, second.reshape(addresses.shape), third.reshape(addresses.shape)
    raise ValueError("an access to memory whose pointers, mask and values have different shapes")

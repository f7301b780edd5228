"""Replaces the memory operations of Triton's interpreter by guarded ones (guarded_memory.py).

Every operation passes addresses, mask and values of one shape to the guard of the running launch.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import numpy as np

from kernelwright.tools.replaying.interpreter.guarded_memory import current, store_values
from kernelwright.tools.replaying.interpreter.races import MemoryOrder


class Handle(Protocol):
    """Array of the interpreter with its Triton type (`TensorHandle`, whose own annotations are wrong)."""

    data: np.ndarray
    dtype: Any

    def get_element_ty(self) -> Any:
        """Returns the type to which a pointer points."""


def install() -> None:
    """Replaces the interpreter builder's memory operations by guarded ones. Called once per
    process.
    """
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    handle = interpreter.TensorHandle
    np_dtype = interpreter._get_np_dtype

    def masked_load(
        self: Any,
        ptrs: Handle,
        mask: Handle,
        other: np.ndarray,
        *options: Any,
        **named: Any,
    ) -> Any:
        element = ptrs.get_element_ty()
        dtype = np_dtype(element)
        filling: Any = np.zeros(ptrs.data.shape, dtype) if other is None else other.data
        volatile = bool(named.get("is_volatile", options[-1] if options else False))
        addresses, lanes, filling = _same_shape(ptrs.data, _boolean(mask.data), filling)
        return handle(current[-1].load(addresses, lanes, filling, dtype, volatile), element)

    def masked_store(
        self: Any,
        ptrs: Handle,
        value: Handle,
        mask: Handle,
        *options: Any,
        **named: Any,
    ) -> None:
        addresses, lanes, values = _same_shape(ptrs.data, _boolean(mask.data), value.data)
        current[-1].store(addresses, values, lanes)

    def barrier(self: Any) -> None:
        current[-1].barrier()

    builder.create_masked_load = masked_load
    builder.create_masked_store = masked_store
    builder.create_barrier = barrier
    _install_atomic_updates()
    if hasattr(builder, "create_atomic_poll"):  # Triton 3.6 has none of the three
        _install_atomic_accesses()


def _install_atomic_updates() -> None:
    """`tl.atomic_add` and its like, and `tl.atomic_cas`."""
    from triton.runtime import interpreter

    from kernelwright.tools.replaying.interpreter.number_formats.bfloat16 import add_atomically

    builder = interpreter.InterpreterBuilder
    handle = interpreter.TensorHandle
    adding = interpreter._ir.ATOMIC_OP.FADD
    original_rmw = builder.create_atomic_rmw
    original_cas = builder.create_atomic_cas

    def atomic_rmw(
        self: Any,
        operation: object,
        ptr: Handle,
        val: Handle,
        mask: Handle,
        sem: object,
        scope: object,
    ) -> Any:
        addresses, lanes, _ = _same_shape(ptr.data, _boolean(mask.data), val.data)
        size = val.data.dtype.itemsize

        def perform() -> Any:
            if operation == adding and val.dtype.scalar.name == "bf16":
                values = np.broadcast_to(val.data, addresses.shape)
                return handle(add_atomically(addresses, lanes, values), val.dtype.scalar)
            return original_rmw(self, operation, ptr, val, mask, sem, scope)

        return current[-1].atomic(addresses, lanes, size, MemoryOrder.of(sem), perform)

    def atomic_cas(
        self: Any,
        ptr: Handle,
        cmp: Handle,
        val: Handle,
        sem: object,
        scope: object,
    ) -> Any:
        addresses, _, _ = _same_shape(ptr.data, cmp.data, val.data)
        size = val.data.dtype.itemsize
        swap = partial(original_cas, self, ptr, cmp, val, sem, scope)
        return current[-1].atomic(addresses, None, size, MemoryOrder.of(sem), swap)

    builder.create_atomic_rmw = atomic_rmw
    builder.create_atomic_cas = atomic_cas


def _install_atomic_accesses() -> None:
    """Replaces `tl.atomic_load`, `tl.atomic_store` and `tl.atomic_poll` by guarded ones."""
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    handle = interpreter.TensorHandle
    np_dtype = interpreter._get_np_dtype
    original_poll = builder.create_atomic_poll

    def atomic_load(self: Any, ptr: Handle, mask: Handle, sem: object, scope: object) -> Any:
        element = ptr.get_element_ty()
        dtype = np_dtype(element)
        addresses, lanes, filling = _same_shape(
            ptr.data, _boolean(mask.data), np.zeros(ptr.data.shape, dtype)
        )
        acquires = MemoryOrder.of(sem).acquires
        return handle(current[-1].load(addresses, lanes, filling, dtype, True, acquires), element)

    def atomic_store(
        self: Any,
        ptr: Handle,
        val: Handle,
        mask: Handle,
        sem: object,
        scope: object,
    ) -> Any:
        addresses, lanes, values = _same_shape(ptr.data, _boolean(mask.data), val.data)
        size = values.dtype.itemsize
        current[-1].atomic(
            addresses,
            lanes,
            size,
            MemoryOrder.of(sem),
            lambda: store_values(addresses, values, lanes),
        )

    def atomic_poll(
        self: Any,
        ptr: Handle,
        expected: Handle,
        timeout_ns: object,
        sem: object,
        scope: object,
    ) -> Any:
        matched = original_poll(self, ptr, expected, timeout_ns, sem, scope)
        if MemoryOrder.of(sem).acquires:
            current[-1].acquire(ptr.data[matched.data])
        return matched

    builder.create_atomic_load = atomic_load
    builder.create_atomic_store = atomic_store
    builder.create_atomic_poll = atomic_poll


def _boolean(mask: np.ndarray) -> Any:
    return mask if mask.dtype == np.bool_ else mask.astype(np.bool_)


def _same_shape(
    addresses: np.ndarray, second: np.ndarray, third: np.ndarray
) -> tuple[Any, Any, Any]:
    """Returns addresses, mask and values in a single shape; Triton's own code does not check that
    their sizes agree.
    """
    if addresses.shape == second.shape == third.shape:
        return addresses, second, third
    if addresses.size == second.size == third.size:
        return addresses, second.reshape(addresses.shape), third.reshape(addresses.shape)
    raise ValueError("an access to memory whose pointers, mask and values have different shapes")

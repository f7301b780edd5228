"""bfloat16 under Triton's interpreter, which keeps its numbers as whole numbers of 16 bits and
adds, compares and converts those.

Here an operation on bfloat16 widens its operands to float32, computes, and rounds the result to
the nearest bfloat16, ties to even, as a GPU does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import triton.language as tl
    from triton.runtime.interpreter import ReduceScanOpInterface as ReduceScanOp
    from triton.runtime.interpreter import TensorHandle

_BITS = np.dtype(np.uint16)
_QUIET_NAN = np.uint32(0x7FC0)


def widen(bits: np.ndarray) -> Any:
    """Converts bfloat16 bits to float32, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(values: np.ndarray) -> Any:
    """float32 as the bits of the nearest bfloat16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    # Adding half a unit, or one less if the kept part is even, rounds to nearest with ties to even.
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), _QUIET_NAN, rounded).astype(np.uint16)


def install() -> None:
    """Replaces the floating-point operations of the interpreter's builder by versions that
    support bfloat16.
    """
    _install_arithmetic()
    _install_conversions()


def _is_bf16(value: TensorHandle) -> bool:
    return value.data.dtype == _BITS and value.dtype.scalar.name == "bf16"


def _rounded(result: np.ndarray) -> Any:
    """Returns a handle of bfloat16 numbers, or of booleans if the operation was a comparison."""
    import triton.language as tl
    from triton.runtime import interpreter

    bits = result if result.dtype == np.bool_ else narrow(result)
    return interpreter.TensorHandle(bits, tl.bfloat16)


def _over_float32(original: Callable[..., Any], compute: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps an operation of the builder. compute: function of float32 arrays."""

    def call(self: Any, *operands: Any) -> Any:
        if not _is_bf16(operands[-1]):
            return original(self, *operands)
        arrays = [widen(o.data) if _is_bf16(o) else o.data for o in operands]
        return _rounded(compute(*arrays))

    return call


def _install_arithmetic() -> None:
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    unary = builder.unary_op
    binary = builder.binary_op
    ternary = builder.ternary_op

    def unary_op(self: Any, value: TensorHandle, function: Callable[..., Any]) -> Any:
        if not _is_bf16(value):
            return unary(self, value, function)
        return _rounded(function(widen(value.data)))

    def binary_op(
        self: Any, lhs: TensorHandle, rhs: TensorHandle, function: Callable[..., Any]
    ) -> Any:
        if not _is_bf16(rhs):
            return binary(self, lhs, rhs, function)
        return _rounded(function(widen(lhs.data), widen(rhs.data)))

    def ternary_op(
        self: Any,
        first: TensorHandle,
        second: TensorHandle,
        third: TensorHandle,
        function: Callable[..., Any],
    ) -> Any:
        # A selection moves bits and needs no arithmetic.
        if function is np.where or not _is_bf16(third):
            return ternary(self, first, second, third, function)
        return _rounded(function(widen(first.data), widen(second.data), widen(third.data)))

    def fused(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        return (x.astype(np.float64) * y + z).astype(np.float32)

    builder.unary_op = unary_op
    builder.binary_op = binary_op
    builder.ternary_op = ternary_op
    builder.create_fma = _over_float32(builder.create_fma, fused)
    builder.create_rsqrt = _over_float32(builder.create_rsqrt, lambda x: 1 / np.sqrt(x))
    builder.create_erf = _over_float32(builder.create_erf, interpreter.np_erf_fp32)


def _install_conversions() -> None:
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    handle = interpreter.TensorHandle
    bf16 = tl.bfloat16
    cast = builder.cast_impl

    def cast_impl(self: Any, value: TensorHandle, type_: tl.dtype) -> Any:
        target = type_.scalar
        if _is_bf16(value):
            if target == bf16:
                return handle(value.data.copy(), bf16)
            return handle(widen(value.data).astype(interpreter._get_np_dtype(type_)), target)
        if target == bf16:
            return handle(narrow(value.data.astype(np.float32)), bf16)
        return cast(self, value, type_)

    def get_bf16(self: Any, value: float) -> Any:
        return handle(narrow(np.array([value], np.float32)), bf16)

    builder.cast_impl = cast_impl
    builder.get_bf16 = get_bf16  # Triton 3.6 has none


def install_reductions() -> None:
    """Extremes of NumPy, found in float32. After their own repairs."""
    import triton.language as tl
    from triton.runtime import interpreter

    def over(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(
            self: Any, operand: tl.tensor | tuple[tl.tensor, ...], *arguments: Any, **keywords: Any
        ) -> Any:
            first = operand[0] if isinstance(operand, tuple) else operand
            if first.dtype.name != "bf16":
                return original(self, operand, *arguments, **keywords)
            wide = self.to_tensor(widen(first.handle.data), tl.float32)
            return back(self, original(self, wide, *arguments, **keywords))

        return call

    def back(op: ReduceScanOp, result: Any) -> Any:
        if isinstance(result, tuple | list):
            return type(result)(back(op, part) for part in result)
        if result.dtype != tl.float32:  # a place
            return result
        bits = narrow(result.handle.data)
        return op.to_tensor(bits if result.type.is_block() else bits.item(), tl.bfloat16)

    interpreter.ReduceOps.min_max = over(interpreter.ReduceOps.min_max)


def add_atomically(addresses: np.ndarray, lanes: np.ndarray, values: np.ndarray) -> Any:
    """Adds bfloat16 numbers to memory, lane by lane, and returns the values before each addition.
    The addresses must have been checked.
    """
    import ctypes

    before = np.zeros(addresses.shape, np.uint16)
    flat = addresses.reshape(-1)
    old = before.reshape(-1)
    amounts = widen(values).reshape(-1)
    for lane in np.flatnonzero(lanes.reshape(-1)).tolist():
        number = ctypes.c_uint16.from_address(int(flat[lane]))
        old[lane] = number.value
        number.value = int(narrow(widen(old[lane : lane + 1]) + amounts[lane])[0])
    return before

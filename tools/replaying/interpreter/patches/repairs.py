"""Corrects and speeds up Triton's interpreter: products in a GPU's precision.
Changes the interpreter of the process for good.
"""

from __future__ import annotations

import types
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.tools.references.arithmetic import TF32_DROPPED_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

HALF_DOT_STEP = 16
"""Number of products that a tensor core adds before rounding a float16 sum."""
PARTS: dict[str, tuple[tuple[int, int], ...]] = {
    "bf16x3": ((1, 0), (0, 1)),
    "bf16x6": ((2, 0), (0, 2), (1, 1), (1, 0), (0, 1)),
}
"""Those of the three bf16 parts of two fp32 operands that are multiplied, beside the largest two
(Triton's F32DotTC pass).
"""


def repair_dot() -> None:
    """bf16 operands are widened (the interpreter of Triton 3.9 multiplies their bit patterns),
    fp32 operands of a tf32 product are rounded to tf32, and those of bf16x3 and bf16x6, which the
    interpreter does not know, are multiplied in parts.

    So a kernel that leaves `tl.dot` at its default for fp32 is as wrong here as on a GPU.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    original = interpreter.InterpreterBuilder.create_dot

    builder = interpreter.interpreter_builder
    precisions = builder.options.allowed_dot_input_precisions
    builder.options = replace(
        builder.options, allowed_dot_input_precisions=(*dict.fromkeys((*precisions, *PARTS)),)
    )

    def create_dot(
        self: Any,
        a: TensorHandle,
        b: TensorHandle,
        d: TensorHandle,
        input_precision: object,
        max_num_imprecise_acc: object,
    ) -> Any:
        parts = PARTS.get(str(input_precision).rsplit(".", 1)[-1].lower())
        if parts is not None and a.dtype.scalar == tl.float32:
            product = _product_in_parts(a.data, b.data, parts) + d.data
            return interpreter.TensorHandle(
                product.astype(d.data.dtype, copy=False), d.dtype.scalar
            )
        a, b = (_operand(x, tl, interpreter, str(input_precision)) for x in (a, b))
        if d.dtype.scalar == tl.float16:
            return interpreter.TensorHandle(_product_in_half(a.data, b.data, d.data), tl.float16)
        return original(self, a, b, d, input_precision, max_num_imprecise_acc)

    interpreter.InterpreterBuilder.create_dot = create_dot


def repair_splat() -> None:
    """Keeps bool arrays bool when a scalar condition meets a block mask: `mask & (row < rows)`.

    The interpreter spreads a comparison as the type of its operands; the mask becomes an integer,
    which a load refuses.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    original = interpreter.InterpreterBuilder.create_splat

    def create_splat(self: Any, *arguments: Any) -> Any:
        spread = original(self, *arguments)
        if arguments[-1].data.dtype != np.bool_:
            return spread
        return interpreter.TensorHandle(spread.data.astype(np.bool_), tl.int1)

    interpreter.InterpreterBuilder.create_splat = create_splat


def repair_masks_of_descriptors() -> None:
    """Makes the masks of a tensor descriptor handles, as every other mask is: in Triton 3.6 they are arrays."""
    import triton.language as tl
    from triton.runtime import interpreter

    original = interpreter.TensorDescHandle.materialize_pointers

    def materialize_pointers(self: Any, offsets: Any) -> Any:
        pointers, masks = original(self, offsets)
        if isinstance(masks, np.ndarray):
            masks = interpreter.TensorHandle(masks, tl.int1)
        return pointers, masks

    interpreter.TensorDescHandle.materialize_pointers = materialize_pointers


def repair_unsigned_ones() -> None:
    """Returns an unsigned number with all bits set, for `~bits`: Triton 3.6 asks NumPy for -1."""
    from triton.runtime import interpreter

    original = interpreter.InterpreterBuilder.get_all_ones_value

    def get_all_ones_value(self: Any, dtype: Any) -> Any:
        numbers = interpreter._get_np_dtype(dtype)
        if np.issubdtype(numbers, np.unsignedinteger):
            ones = np.full(1, np.iinfo(numbers).max, dtype=numbers)
            return interpreter.TensorHandle(ones, dtype.scalar)
        return original(self, dtype)

    interpreter.InterpreterBuilder.get_all_ones_value = get_all_ones_value


def repair_index() -> None:
    """Supports loops to a computed number: `range(0, n, BLOCK)`. Triton 3.6 calls `int()` on an
    array of one element, which NumPy no longer allows.
    """
    from triton.runtime import interpreter

    original = getattr(interpreter, "_patch_lang_tensor", None)
    if original is None:
        return

    def patch_lang_tensor(tensor: type, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_lang_tensor


def repair_arguments_of_extremes() -> None:
    """Returns index 0 for the largest number in a row of NaN, as a GPU may; NumPy raises."""
    from triton.runtime import interpreter

    original = interpreter.ReduceOps.min_max

    def index_of_extreme(find: Callable[..., Any], lowest: float) -> Any:
        def find_index(data: np.ndarray, axis: int | None, keepdims: bool) -> Any:
            if data.dtype.kind == "f":
                data = np.where(np.isnan(data), data.dtype.type(lowest), data)
            return find(data, axis=axis, keepdims=keepdims)

        return find_index

    replacements: dict[Any, Any] = {
        np.nanargmax: index_of_extreme(np.argmax, -np.inf),
        np.nanargmin: index_of_extreme(np.argmin, np.inf),
    }

    def min_max(
        self: Any,
        input: tl.tensor,
        val_reduce_op: Callable[..., Any],
        idx_reduce_op: Callable[..., Any] | None = None,
    ) -> Any:
        return original(self, input, val_reduce_op, replacements.get(idx_reduce_op, idx_reduce_op))

    interpreter.ReduceOps.min_max = min_max


def compute_erf_at_once() -> None:
    """Vectorises erf: Triton's interpreter calls Python's `math.erf` for each number."""
    from triton.runtime import interpreter

    from kernelwright.tools.replaying.interpreter.patches.libdevice import by_torch

    erf = by_torch("erf")

    def create_erf(self: Any, arg: TensorHandle) -> Any:
        return interpreter.TensorHandle(erf(arg.data), arg.dtype.scalar)

    interpreter.np_erf_fp32 = interpreter.np_erf_fp64 = erf
    interpreter.InterpreterBuilder.create_erf = create_erf


def patch_permanently() -> None:
    """Triton's language is patched once for the whole process, with `tl` and `tl.core` alike.
    Triton itself walks all of `triton.language` at every launch and again at every call of a
    device function, `tl.sum` and `tl.sigmoid` among them: a millisecond each.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    def world() -> None:
        """Function with the globals in which Triton looks for its language."""

    interpreter._patch_lang(types.FunctionType(world.__code__, {"tl": tl, "core": tl.core}))
    done = interpreter._LangPatchScope()
    interpreter._patch_lang = lambda fn: done


def raise_as_it_is() -> None:
    """Raises errors of device functions unwrapped: Triton wraps each in an error which quotes the
    text, and over a hundred calls deep the nested quotes fill all memory.
    """
    from triton.runtime import interpreter

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return self.rewrite()(*arguments, **keywords)

    interpreter.InterpretedFunction.__call__ = call


def forget_overflow() -> None:
    """Turns off the second computation in int64 beside every integer sum and product, half of a
    convolution's time. Its result serves `device_assert` in debug mode only; a GPU's release
    build has none.
    """
    from triton.runtime.interpreter import interpreter_builder

    interpreter_builder.options = replace(interpreter_builder.options, sanitize_overflow=False)


def keep_dtypes() -> None:
    """NumPy's type of a Triton type, remembered by name: the interpreter builds a table of
    nineteen entries for each answer.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    answer, cached = interpreter._get_np_dtype, dict[str, Any]()

    def np_dtype(tt_dtype: tl.dtype) -> Any:
        scalar = tt_dtype.scalar
        name = "" if isinstance(scalar, tl.pointer_type) else scalar.name
        dtype = cached.get(name)
        if dtype is None:
            dtype = cached[name] = answer(tt_dtype)
        return dtype

    interpreter._get_np_dtype = np_dtype


def _operand(handle: TensorHandle, tl: ModuleType, interpreter: ModuleType, precision: str) -> Any:
    if handle.dtype.scalar == tl.bfloat16:
        widened = (handle.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(widened, tl.float32)
    if handle.dtype.scalar == tl.float32 and precision.rsplit(".", 1)[-1] == "TF32":
        return interpreter.TensorHandle(_tf32(handle.data), tl.float32)
    return handle


def _product_in_parts(
    a: np.ndarray, b: np.ndarray, pairs: tuple[tuple[int, int], ...]
) -> np.ndarray:
    """The sum of products of bf16 parts (Henry, Tang and Heinecke 2019, arXiv:1904.06376).

    A part of an infinity is NaN: as in Triton, such sums of small parts count as zero beside the
    product of the large ones.
    """
    a_parts = _bf16_parts(a)
    right = _bf16_parts(b)
    small = np.zeros((), np.float32)
    for i, j in pairs:
        small = small + np.matmul(a_parts[i], right[j], dtype=np.float32)
    small = np.where(np.isnan(small), np.float32(0), small)
    return np.asarray(small + np.matmul(a_parts[0], right[0], dtype=np.float32))


def _product_in_half(a: np.ndarray, b: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Returns a product added to float16 sums by a tensor core: rounded after each step (mma.m16n8k16)."""
    for first in range(0, a.shape[-1], HALF_DOT_STEP):
        step = slice(first, first + HALF_DOT_STEP)
        sums = (sums + np.matmul(a[..., step], b[..., step, :], dtype=np.float32)).astype(
            np.float16
        )
    return sums


def _bf16_parts(values: np.ndarray) -> list[np.ndarray]:
    """Three bf16 numbers, as fp32, whose sum is the value."""
    parts = []
    remainder = values
    with np.errstate(invalid="ignore"):
        for _ in range(3):
            parts.append(_bf16(remainder))
            remainder = remainder - parts[-1]
    return parts


def _bf16(values: np.ndarray) -> np.ndarray:
    """Rounds to 7 bits of mantissa, to nearest, ties to even; infinities and NaN stay."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(
        np.float32
    )
    return np.where(np.isfinite(values), rounded, values)


def _tf32(values: np.ndarray) -> np.ndarray:
    """Rounds to 10 bits of mantissa, to nearest, ties away (cvt.rna.tf32.f32); infinities and NaN
    stay.
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (
        (bits + np.uint32(1 << (TF32_DROPPED_BITS - 1)))
        & np.uint32(0xFFFFFFFF << TF32_DROPPED_BITS & 0xFFFFFFFF)
    ).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


def check_promised_multiples() -> None:
    """Ends a kernel that promises a false multiple of a number: `tl.multiple_of(columns, 16)` of 149 columns.

    A GPU then loads several elements at once from an address that is not aligned. Promises about whole blocks are
    common where an index wraps around, and stay unchecked.
    """
    from triton.runtime import interpreter

    from kernelwright.tools.replaying.interpreter.guarded_memory import OutOfBounds

    original = interpreter.TensorHandle.set_attr

    def set_attr(self: Any, key: str, value: Sequence[int]) -> None:
        is_number = self.data.size == 1 and np.issubdtype(self.data.dtype, np.integer)
        if key == "tt.divisibility" and is_number and not self.dtype.is_ptr():
            number, multiple = int(self.data.item()), int(value[0])
            if multiple > 0 and number % multiple:
                raise OutOfBounds(
                    f"the kernel promises the compiler a multiple of {multiple}, and the number is {number}: a GPU may "
                    "load from addresses that are not aligned"
                )
        original(self, key, value)

    interpreter.TensorHandle.set_attr = set_attr


REPAIRS = (
    check_promised_multiples,
    compute_erf_at_once,
    repair_dot,
    repair_splat,
    repair_masks_of_descriptors,
    repair_unsigned_ones,
    repair_index,
    repair_arguments_of_extremes,
)
"""Repairs of operations which Triton's interpreter computes differently from a GPU."""
INTERPRETER_SPEEDUPS = (keep_dtypes, forget_overflow, patch_permanently, raise_as_it_is)
"""Speedups of Triton's interpreter with equal results."""

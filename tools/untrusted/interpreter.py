"""Triton's interpreter made honest: products in the precision a GPU would use, and autotuning without a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

TF32_DROPPED_BITS = 13


def repair_dot() -> None:
    """bf16 operands are widened (the interpreter of Triton 3.9 multiplies their bit patterns), and fp32 operands of a tf32 product are rounded to tf32.

    So a kernel that leaves `tl.dot` at its default for fp32 is as wrong here as on a GPU.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    original = interpreter.InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        a, b = (_operand(x, tl, interpreter, str(input_precision)) for x in (a, b))
        return original(self, a, b, d, input_precision, max_num_imprecise_acc)

    interpreter.InterpreterBuilder.create_dot = create_dot


def repair_splat() -> None:
    """A scalar condition against a block mask: `mask & (row < rows)`. The interpreter keeps a comparison as bool under the type of what was compared, and
    spreads it as that type; the mask is an integer then, and the load refuses it.
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


def repair_index() -> None:
    """A loop to a number that was computed: `range(0, n, BLOCK)`. Triton 3.6 reads it with `int()` off an array of one element, which NumPy no longer has."""
    from triton.runtime import interpreter

    original = getattr(interpreter, "_patch_lang_tensor", None)
    if original is None:
        return

    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_lang_tensor


def repair_scan() -> None:
    """Running sums and products as exact as a GPU's, which adds in a tree: NumPy adds one after the other, and over a thousand equal numbers the
    rounding, always to the same side, made honest scans wrong. Summed in float64 and rounded once a number.
    """
    from triton.runtime import interpreter

    def exactly(fold: Any) -> Any:
        def scanned(self: Any, input: Any) -> list[Any]:
            data = input.handle.data
            wide = (
                fold(data.astype(np.float64), axis=self.axis).astype(data.dtype)
                if data.dtype.kind == "f"
                else fold(data, axis=self.axis)
            )
            return [self.to_tensor(wide, dtype=input.dtype)]

        return scanned

    interpreter.ScanOps.cumsum, interpreter.ScanOps.cumprod = exactly(np.cumsum), exactly(np.cumprod)


def patch_once() -> None:
    """Triton's language is patched once a launch. `tl.sum`, `tl.sigmoid` and a kernel's own helpers are device functions, and the interpreter walks all of
    `triton.language` again at each of their calls: a quarter to a third of what a norm kernel takes.
    """
    from triton.runtime import interpreter

    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    seen: list[set[int]] = []

    def patch_lang(fn: Any) -> Any:
        where = id(fn.__globals__)
        if seen and where in seen[-1]:
            return None
        if seen:
            seen[-1].add(where)
        return patch(fn)

    def launched(self: Any, *arguments: Any, **keywords: Any) -> Any:
        seen.append(set())
        try:
            return launch(self, *arguments, **keywords)
        finally:
            seen.pop()

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = patch_lang, launched


def forget_overflow() -> None:
    """No second computation in int64 beside every sum and product of integers: what it finds, `device_assert` says only in debug mode, and a GPU's
    release build has none. Half of what a convolution takes.
    """
    from triton.runtime.interpreter import interpreter_builder

    interpreter_builder.options = replace(interpreter_builder.options, sanitize_overflow=False)


def keep_dtypes() -> None:
    """NumPy's type of a Triton type, remembered by name: the interpreter builds a table of nineteen entries for each answer."""
    import triton.language as tl
    from triton.runtime import interpreter

    answer, known = interpreter._get_np_dtype, dict[str, Any]()

    def np_dtype(tt_dtype: Any) -> Any:
        scalar = tt_dtype.scalar
        name = "" if isinstance(scalar, tl.pointer_type) else scalar.name
        found = known.get(name)
        if found is None:
            found = known[name] = answer(tt_dtype)
        return found

    interpreter._get_np_dtype = np_dtype


def _operand(handle: Any, tl: Any, interpreter: Any, precision: str) -> Any:
    if handle.dtype.scalar == tl.bfloat16:
        widened = (handle.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(widened, tl.float32)
    if handle.dtype.scalar == tl.float32 and precision.rsplit(".", 1)[-1] == "TF32":
        return interpreter.TensorHandle(_tf32(handle.data), tl.float32)
    return handle


def _tf32(values: np.ndarray) -> np.ndarray:
    """Round to nearest, ties away, on 10 bits of mantissa (cvt.rna.tf32.f32); what is not finite stays."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (
        (bits + np.uint32(1 << (TF32_DROPPED_BITS - 1))) & np.uint32(0xFFFFFFFF << TF32_DROPPED_BITS & 0xFFFFFFFF)
    ).view(np.float32)
    return np.where(np.isfinite(values), rounded, values)


class NoDevice:
    """A driver for the interpreter: nothing to launch on, every autotune config as fast as the next, so the first is taken."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: Any = None) -> int:
        return 0

    def set_current_device(self, device: Any) -> None: ...

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        import torch

        return torch.cpu

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(1)

    def clear_cache(self, cache: Any) -> None: ...

    def get_benchmarker(self) -> Any:
        return lambda call, quantiles=None, **_: [1.0] * len(quantiles or (0.5,))


def without_a_gpu() -> None:
    """Autotuned kernels run under the interpreter: no driver is asked for, no config is timed."""
    import triton.testing
    from triton.runtime.driver import driver

    driver.set_active(NoDevice())

    def same(call: Any, *args: Any, quantiles: Any = None, **kwargs: Any) -> Any:
        return [1.0] * len(quantiles) if quantiles else 1.0

    triton.testing.do_bench = same
    triton.testing.do_bench_cudagraph = same


REPAIRS = (repair_dot, repair_splat, repair_index, repair_scan)
"""Of what it computes otherwise than a GPU."""
QUICKER = (patch_once, keep_dtypes, forget_overflow)
"""The same answers sooner."""

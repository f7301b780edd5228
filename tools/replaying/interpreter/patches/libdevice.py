"""libdevice functions on numpy arrays: under Triton's interpreter `libdevice.tanh(x)` is a stub
that returns None.

The functions which kernels use are defined; every other function of libdevice raises
NotInterpreted.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

from kernelwright.tools.replaying.interpreter.needs_gpu import NotInterpreted
from kernelwright.tools.replaying.interpreter.patches.language_speedups import extra_modules
from kernelwright.tools.replaying.interpreter.recording.watched_language import recorded

Function = Callable[..., Any]
LIBDEVICE_MODULES = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")

SAME_NAME = """
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh exp exp2 expm1 floor fmax fmin fmod hypot
    isinf isnan log log10 log1p log2 rint signbit sin sinh sqrt tan tanh trunc
"""
"""Functions with the same name in NumPy, or with the name in `ALIASES`."""

ALIASES = {
    "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atan2": "arctan2",
    "atanh": "arctanh",
}  # fmt: skip

FAST = """
    cosf:cos dividef:div_rn exp10f:exp10 expf:exp log10f:log10 log2f:log2 logf:log powf:pow sinf:sin tanf:tan tanhf:tanh
"""
"""Approximate ones, `fast_NAME`: here as exact as the others."""


def _each(function: Function, arguments: int = 1) -> Function:
    """Makes a NumPy ufunc from a function of Python floats; errors become NaN."""

    def guarded(*values: float) -> float:
        try:
            return function(*map(float, values))
        except (ValueError, OverflowError, ArithmeticError):
            return math.nan

    return np.frompyfunc(guarded, arguments, 1)


def by_torch(name: str) -> Function:
    """Returns a function of torch.special over arrays, for functions which NumPy lacks."""

    def call(values: np.ndarray) -> Any:
        import torch

        whole = np.ascontiguousarray(
            values, np.float64 if values.dtype == np.float64 else np.float32
        )
        return (
            getattr(torch.special, name)(torch.from_numpy(whole))
            .numpy()
            .astype(values.dtype, copy=False)
        )

    return call


def _normal_quantile(p: float) -> float:
    if p in (0.0, 1.0):
        return math.inf if p else -math.inf
    return NormalDist().inv_cdf(p)


def _reciprocal(x: float) -> float:
    return 1.0 / x if x else math.copysign(math.inf, x)


def _root_reciprocal(x: float) -> float:
    return _reciprocal(math.sqrt(x))


def _round(x: float) -> float:
    """Rounds to the nearest integer, halves away from zero."""
    return math.copysign(math.floor(abs(x) + 0.5), x) if math.isfinite(x) else x


def _unsigned(values: np.ndarray) -> Any:
    return values.view(f"u{values.dtype.itemsize}")


def _smeared(values: np.ndarray) -> Any:
    """Sets every bit below the highest set bit of integers."""
    bits = _unsigned(values)
    for distance in (1, 2, 4, 8, 16, 32)[: bits.dtype.itemsize.bit_length() + 2]:
        bits = bits | (bits >> bits.dtype.type(distance))
    return bits


def _count_bits(values: np.ndarray) -> Any:
    return np.bitwise_count(_unsigned(values)).astype(np.int32)


def _leading_zeros(values: np.ndarray) -> Any:
    return np.int32(8 * values.dtype.itemsize) - np.bitwise_count(_smeared(values)).astype(np.int32)


def _first_set(values: np.ndarray) -> Any:
    """Returns the position of the lowest set bit, from 1; 0 for 0."""
    bits = _unsigned(values)
    lowest = bits & (~bits + bits.dtype.type(1))
    return np.where(
        bits == 0, 0, np.bitwise_count(lowest - bits.dtype.type(1)).astype(np.int32) + 1
    )


def _reversed_bits(values: np.ndarray) -> Any:
    bits = _unsigned(values)
    reverse = np.zeros_like(bits)
    for _ in range(8 * bits.dtype.itemsize):
        reverse = (reverse << bits.dtype.type(1)) | (bits & bits.dtype.type(1))
        bits = bits >> bits.dtype.type(1)
    return reverse.view(values.dtype)


OF_WHOLE_NUMBERS: dict[str, Function] = {
    "brev": _reversed_bits, "clz": _leading_zeros, "ffs": _first_set, "popc": _count_bits,
}  # fmt: skip
COUNTS = frozenset({"clz", "ffs", "popc"})
"""Functions of 32- or 64-bit integers with 32-bit results."""


def _table() -> dict[str, Function]:
    functions: dict[str, Function] = {n: getattr(np, ALIASES.get(n, n)) for n in SAME_NAME.split()}
    functions |= {n: by_torch(n) for n in ("erf", "erfc")} | {"lgamma": by_torch("gammaln")}
    functions |= {n: by_torch(f"bessel_{n}") for n in ("j0", "j1", "y0", "y1")}
    functions |= {f"cyl_bessel_{n}": by_torch(n) for n in ("i0", "i1")}
    functions |= {
        "add_rn": np.add,
        "div_rn": np.divide,
        "erfinv": _each(lambda x: _normal_quantile((x + 1) / 2) / math.sqrt(2)),
        "exp10": _each(lambda x: 10.0**x),
        "fabs": np.abs,
        "finitef": np.isfinite,
        "isfinited": np.isfinite,
        "fma": _each(lambda x, y, z: x * y + z, 3),
        "max": np.maximum,
        "min": np.minimum,
        "mul_rn": np.multiply,
        "nearbyint": np.rint,
        "normcdf": _each(NormalDist().cdf),
        "normcdfinv": _each(_normal_quantile),
        "pow": np.power,
        "rcp_rn": _each(_reciprocal),
        "remainder": _each(math.remainder, 2),
        "round": _each(_round),
        "rsqrt": _each(_root_reciprocal),
        "sqrt_rn": np.sqrt,
        "sub_rn": np.subtract,
        "tgamma": _each(math.gamma),
    }
    fast = (pair.split(":") for pair in FAST.split())
    return functions | OF_WHOLE_NUMBERS | {f"fast_{name}": functions[of] for name, of in fast}


def provide_libdevice() -> None:
    """Replaces Triton's libdevice stubs. Called once per interpreting process, before a kernel is
    rebuilt.
    """
    import importlib

    table = _table()
    for name in LIBDEVICE_MODULES:
        importlib.import_module(name)
    for module in extra_modules(LIBDEVICE_MODULES):
        for function, stub in list(vars(module).items()):
            if not function.startswith("_") and isinstance(stub, types.FunctionType):
                numpy = table.get(function)
                setattr(
                    module,
                    function,
                    _missing(function)
                    if numpy is None
                    else recorded(function, _interpreted(function, numpy)),
                )


def _missing(name: str) -> Function:
    def call(*_: Any, **__: Any) -> Any:
        raise NotInterpreted(f"libdevice.{name} is not interpreted")

    call.__name__ = name
    return call


def _interpreted(name: str, function: Function) -> Function:
    """Takes and gives the interpreter's tensors; predicates give int1, everything else the widest argument's type."""
    import triton.language as tl
    from triton.runtime import interpreter

    def call(*arguments: Any, **_: Any) -> Any:
        tensors = [a for a in arguments if isinstance(a, tl.tensor)]
        if not tensors:
            raise TypeError(f"libdevice.{name} takes a tensor")
        values = [
            a.handle.data if isinstance(a, tl.tensor) else np.asarray(getattr(a, "value", a))
            for a in arguments
        ]
        largest = max(tensors, key=lambda t: t.handle.data.size)
        if name in OF_WHOLE_NUMBERS and largest.dtype.primitive_bitwidth < 32:
            raise TypeError(
                f"libdevice.{name} takes whole numbers of 32 or 64 bits, not {largest.dtype}"
            )
        with np.errstate(all="ignore"):
            out = np.asarray(function(*values))
        scalar = tl.int1 if out.dtype == np.bool_ else largest.dtype
        if name in COUNTS:
            scalar = tl.int32
            out = out.astype(np.int32)
        elif scalar is not tl.int1:
            out = out.astype(largest.handle.data.dtype)
        kind = tl.block_type(scalar, largest.shape) if largest.type.is_block() else scalar
        return tl.tensor(interpreter.TensorHandle(out, scalar), kind)

    call.__name__ = name
    return call

"""libdevice under Triton's interpreter, which has none: there `libdevice.tanh(x)` is a stub that answers None.

The functions that kernels use, on numpy arrays. What is missing stays as Triton left it and fails by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

from tools.untrusted.kernel_names import lend

Function = Callable[..., Any]
MODULES = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")

SAME_NAME = """
    abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh exp exp2 expm1 floor fmax fmin fmod hypot isinf isnan log log10 log1p log2
    rint signbit sin sinh sqrt tan tanh trunc
"""
"""Which numpy has under the same name, or under the name that `ALIASES` gives."""

ALIASES = {
    "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atan2": "arctan2", "atanh": "arctanh",
}  # fmt: skip

FAST = """
    cosf:cos dividef:div_rn exp10f:exp10 expf:exp log10f:log10 log2f:log2 logf:log powf:pow sinf:sin tanf:tan tanhf:tanh
"""
"""Approximate ones, `fast_NAME`: here as exact as the others."""


def _each(function: Function, arguments: int = 1) -> Function:
    """A function of Python floats, over arrays; what it refuses is NaN. A ufunc: there is no Python left in it to change."""

    def guarded(*values: float) -> float:
        try:
            return function(*map(float, values))
        except (ValueError, OverflowError, ArithmeticError):
            return math.nan

    return np.frompyfunc(guarded, arguments, 1)


def _normal_quantile(p: float) -> float:
    if p in (0.0, 1.0):
        return math.inf if p else -math.inf
    return NormalDist().inv_cdf(p)


def _reciprocal(x: float) -> float:
    return 1.0 / x if x else math.copysign(math.inf, x)


def _root_reciprocal(x: float) -> float:
    return _reciprocal(math.sqrt(x))


def _round(x: float) -> float:
    """Halves away from zero."""
    return math.copysign(math.floor(abs(x) + 0.5), x) if math.isfinite(x) else x


def _table() -> dict[str, Function]:
    found: dict[str, Function] = {n: getattr(np, ALIASES.get(n, n)) for n in SAME_NAME.split()}
    found |= {n: _each(getattr(math, n)) for n in ("erf", "erfc", "lgamma")}
    found |= {
        "div_rn": np.divide,
        "erfinv": _each(lambda x: _normal_quantile((x + 1) / 2) / math.sqrt(2)),
        "exp10": _each(lambda x: 10.0**x),
        "fabs": np.abs,
        "finitef": np.isfinite,
        "isfinited": np.isfinite,
        "fma": _each(lambda x, y, z: x * y + z, 3),
        "max": np.maximum,
        "min": np.minimum,
        "nearbyint": np.rint,
        "normcdf": _each(NormalDist().cdf),
        "normcdfinv": _each(_normal_quantile),
        "pow": np.power,
        "rcp_rn": _each(_reciprocal),
        "remainder": _each(math.remainder, 2),
        "round": _each(_round),
        "rsqrt": _each(_root_reciprocal),
        "sqrt_rn": np.sqrt,
        "tgamma": _each(math.gamma),
    }
    fast = (pair.split(":") for pair in FAST.split())
    return found | {f"fast_{name}": found[of] for name, of in fast}


def provide_libdevice() -> None:
    """Put the functions where kernels import them from. For an interpreted candidate's process only, before its module is loaded."""
    import importlib

    for name in MODULES:
        module = importlib.import_module(name)
        for function, numpy in _table().items():
            if hasattr(module, function):
                made = _interpreted(function, numpy)
                setattr(module, function, made)
                lend(made)


def _interpreted(name: str, function: Function) -> Function:
    """Takes and gives the interpreter's tensors; predicates give int1, everything else the widest argument's type."""
    import triton.language as tl
    from triton.runtime import interpreter

    def call(*arguments: Any, **_: Any) -> Any:
        tensors = [a for a in arguments if isinstance(a, tl.tensor)]
        if not tensors:
            raise TypeError(f"libdevice.{name} takes a tensor")
        values = [a.handle.data if isinstance(a, tl.tensor) else np.asarray(getattr(a, "value", a)) for a in arguments]
        largest = max(tensors, key=lambda t: t.handle.data.size)
        with np.errstate(all="ignore"):
            out = np.asarray(function(*values))
        scalar = tl.int1 if out.dtype == np.bool_ else largest.dtype
        if scalar is not tl.int1:
            out = out.astype(largest.handle.data.dtype)
        kind = tl.block_type(scalar, largest.shape) if largest.type.is_block() else scalar
        return tl.tensor(interpreter.TensorHandle(out, scalar), kind)

    call.__name__ = name
    return call

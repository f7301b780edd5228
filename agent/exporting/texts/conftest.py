"""Runs the tests without a GPU, too: in Triton's interpreter, with libdevice by NumPy and torch."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import numpy as np

RENAMED = {"acos": "arccos", "asin": "arcsin", "atan": "arctan", "atan2": "arctan2", "pow": "power"}
RENAMED |= {
    "acosh": "arccosh",
    "asinh": "arcsinh",
    "atanh": "arctanh",
    "fabs": "abs",
    "lgamma": "gammaln",
}
RENAMED |= {"nearbyint": "rint", "div_rn": "divide", "finitef": "isfinite", "isfinited": "isfinite"}


def _function(name):
    """Returns the function of NumPy or torch for a function of libdevice; None without one."""
    name = RENAMED.get(name, name)
    if name == "rsqrt":
        return lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(x.dtype)
    if hasattr(np, name):
        return getattr(np, name)
    special = getattr(torch.special, name, None)
    if special is None:
        return None
    return lambda x: special(torch.from_numpy(np.ascontiguousarray(x))).numpy()


def _interpreted(function):
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(*arguments, **_):
        tensors = [a for a in arguments if isinstance(a, tl.tensor)]
        largest = max(tensors, key=lambda t: t.handle.data.size)
        values = [a.handle.data if isinstance(a, tl.tensor) else np.asarray(a) for a in arguments]
        with np.errstate(all="ignore"):
            result = np.asarray(function(*values))
        scalar = tl.int1 if result.dtype == np.bool_ else largest.dtype
        if scalar is not tl.int1:
            result = result.astype(largest.handle.data.dtype)
        kind = tl.block_type(scalar, largest.shape) if largest.type.is_block() else scalar
        return tl.tensor(TensorHandle(result, scalar), kind)

    return call


def _multiply_bfloat16():
    """Triton's interpreter multiplies the bit patterns of bfloat16: operands become float32."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    original = InterpreterBuilder.create_dot

    def widened(operand):
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        bits = operand.data.astype(np.uint32) << 16
        return TensorHandle(bits.view(np.float32), tl.float32)

    def create_dot(self, a, b, *rest):
        return original(self, widened(a), widened(b), *rest)

    InterpreterBuilder.create_dot = create_dot


def pytest_configure():
    """Adds to Triton's interpreter what it lacks: libdevice, and products of bfloat16."""
    if os.environ.get("TRITON_INTERPRET", "0") == "0":
        return
    from triton.language.extra import libdevice

    _multiply_bfloat16()
    for name in [name for name in vars(libdevice) if not name.startswith("_")]:
        function = _function(name)
        if function is not None and callable(getattr(libdevice, name)):
            setattr(libdevice, name, _interpreted(function))

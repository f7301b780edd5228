"""libdevice's functions for Triton's interpreter, which has none: computed by torch on the host."""

from __future__ import annotations

from typing import Any

NAMES = {
    "acos": "acos", "asin": "asin", "atan": "atan", "ceil": "ceil", "cos": "cos", "cosh": "cosh", "erf": "erf",
    "erfc": "erfc", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "fast_expf": "exp", "floor": "floor",
    "log": "log", "log1p": "log1p", "log2": "log2", "nearbyint": "round", "rint": "round", "round": "round",
    "rsqrt": "rsqrt", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh", "trunc": "trunc",
    "isnan": "isnan", "isinf": "isinf", "abs": "abs", "pow": "pow", "atan2": "atan2", "fmod": "fmod",
}  # fmt: skip


def install() -> None:
    """Replaces what a kernel file may call; the interpreter itself returns None for these."""
    from triton.language.extra import libdevice

    for name, function in NAMES.items():
        if hasattr(libdevice, name):
            setattr(libdevice, name, _on_the_host(function))


def _on_the_host(function: str) -> Any:
    import numpy
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(*arguments: Any) -> Any:
        first = next(a for a in arguments if isinstance(a, tl.tensor))
        values = [
            torch.from_numpy(numpy.array(a.handle.data)) if isinstance(a, tl.tensor) else a
            for a in arguments
        ]
        result = numpy.asarray(getattr(torch, function)(*values).numpy()).astype(
            first.handle.data.dtype
        )
        return tl.tensor(TensorHandle(result, first.handle.dtype), first.type)

    return call

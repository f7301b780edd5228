"""In what precision candidate and reference multiply, as text beside a speedup: a product in tf32 is not compared
with one in fp32 in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernelwright.tools.report import KernelResources

_NAMES = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}
_LOWEST_FIRST = ("e2m1", "e4m3", "e5m2", "s8", "u8", "bf16", "f16", "tf32", "f32", "f64")
"""Operand types of tensor-core instructions as PTX names them."""
_PLAIN = {
    "f16": "fp16",
    "f32": "fp32",
    "f64": "fp64",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "e2m1": "fp4",
    "s8": "int8",
    "u8": "int8",
}


def reference_precision(tensors: Iterable[Any]) -> str:
    """Returns the precision of torch's eager mode in this process on these inputs and weights: their widest floating
    type; for fp32 what torch's switches make of it.
    """
    import torch

    found = {
        str(t.dtype).removeprefix("torch.")
        for t in tensors
        if t.is_floating_point() or t.is_complex()
    }
    if not found:
        return ""
    if "float32" not in found:
        return ", ".join(_NAMES.get(name, name) for name in sorted(found))
    products, convolutions = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    if products == convolutions:
        return "tf32" if products else "fp32"
    return "tf32, convolutions fp32" if products else "fp32, convolutions tf32"


def candidate_precision(kernels: Sequence[KernelResources]) -> str:
    """The lowest operand type among the tensor-core instructions of its kernels; where there are none, the lowest
    floating type that they are given.
    """
    seen = {kind for kernel in kernels for kind in kernel.mma_types}
    for kind in _LOWEST_FIRST:
        if kind in seen:
            return _PLAIN.get(kind, kind)
    if seen:
        return ", ".join(sorted(seen))
    given = {
        str(kind).lstrip("*k")
        for kernel in kernels
        for kind in kernel.signature.values()
        if str(kind).startswith("*")
    }
    return next(
        (
            kind
            for kind in ("fp8", "bf16", "fp16", "fp32", "fp64")
            if any(g.startswith(kind) for g in given)
        ),
        "",
    )

"""Describes in which precision candidate and reference multiply, as text beside a speedup, so
that a product in tf32 is not silently compared with a product in fp32.
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
    """Returns the precision of torch's eager mode on these inputs and weights: their widest
    floating type, and for fp32 the effect of torch's switches.
    """
    import torch

    operand_types = {
        str(t.dtype).removeprefix("torch.")
        for t in tensors
        if t.is_floating_point() or t.is_complex()
    }
    if not operand_types:
        return ""
    if "float32" not in operand_types:
        return ", ".join(_NAMES.get(name, name) for name in sorted(operand_types))
    products = torch.backends.cuda.matmul.allow_tf32
    convolutions = torch.backends.cudnn.allow_tf32
    if products == convolutions:
        return "tf32" if products else "fp32"
    return "tf32, convolutions fp32" if products else "fp32, convolutions tf32"


def candidate_precision(kernels: Sequence[KernelResources]) -> str:
    """Returns the lowest operand type among the tensor-core instructions of the kernels; without
    any, the lowest floating type of their arguments.
    """
    multiplied = {kind for kernel in kernels for kind in kernel.mma_types}
    for kind in _LOWEST_FIRST:
        if kind in multiplied:
            return _PLAIN.get(kind, kind)
    if multiplied:
        return ", ".join(sorted(multiplied))
    argument_types = {
        str(kind).lstrip("*k")
        for kernel in kernels
        for kind in kernel.signature.values()
        if str(kind).startswith("*")
    }
    return next(
        (
            kind
            for kind in ("fp8", "bf16", "fp16", "fp32", "fp64")
            if any(g.startswith(kind) for g in argument_types)
        ),
        "",
    )

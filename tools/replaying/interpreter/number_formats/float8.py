"""float8 conversions by way of float32 and torch: to the nearest number, ties to even,
saturating.

Triton's own interpreter loses the carry of a mantissa that rounds up to the next power of two,
and the sticky bits of a tie. Saturation is that of `cvt.rn.satfinite` (PTX ISA, "cvt").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.tools.replaying.interpreter.number_formats import bfloat16

if TYPE_CHECKING:
    import torch
    import triton.language as tl


def install() -> None:
    """Replaces the interpreter's conversions from and to float8e4nv and float8e5."""
    import torch
    import triton.language as tl
    from triton.runtime import interpreter

    types = {"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}
    original: Callable[..., Any] = interpreter._convert_float

    def convert(values: np.ndarray, source: tl.dtype, target: tl.dtype, rounding: object) -> Any:
        toward_zero = rounding == interpreter._ir.ROUNDING_MODE.RTZ
        if toward_zero or not {source.name, target.name} & types.keys():
            return original(values, source, target, rounding)
        if source.name in types:
            bits = torch.from_numpy(np.ascontiguousarray(values).view(np.uint8))
            wide = bits.view(types[source.name]).float().numpy()
        else:
            wide = (
                bfloat16.widen(values)
                if source == tl.bfloat16
                else np.asarray(values).astype(np.float32)
            )
        if target.name in types:
            return (
                _narrowed(torch.from_numpy(np.ascontiguousarray(wide)), types[target.name])
                .view(torch.uint8)
                .numpy()
            )
        if target == tl.bfloat16:
            return bfloat16.narrow(wide)
        return wide.astype(interpreter._get_np_dtype(target))

    interpreter._convert_float = convert


def _narrowed(values: torch.Tensor, dtype: torch.dtype) -> Any:
    import torch

    most = torch.finfo(dtype).max
    return values.clamp(-most, most).to(dtype)  # a NaN stays one

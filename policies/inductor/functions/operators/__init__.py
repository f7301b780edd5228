"""Decompositions of aten operators that Inductor leaves to a library, or that torch decomposes
wrongly.

The parameters of each decomposition are those of the operator's schema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def library_operators() -> dict[Any, Callable[..., Any]]:
    """Returns aten's operators with their decompositions."""
    import torch

    from kernelwright.policies.inductor.functions.operators import (
        floats,
        products,
        resizing,
        segments,
    )

    aten = torch.ops.aten
    return {
        aten.frexp.Tensor: floats.frexp,
        aten._int_mm.default: products.int_mm,
        aten._grouped_mm.default: products.grouped_mm,
        aten._upsample_bilinear2d_aa.default: resizing.upsample_bilinear2d_aa,
        aten._upsample_bicubic2d_aa.default: resizing.upsample_bicubic2d_aa,
        aten.segment_reduce.default: segments.segment_reduce,
        aten.masked_scatter.default: segments.masked_scatter,
        aten._pdist_forward.default: segments.pdist_forward,
    }

"""Tensors of numbers forward has written in it (`torch.tensor([0.3, 0.6, 0.1],
device=x.device)`): few are written into the kernels, more are buffers of the candidate.
They were traced on a CPU, and are the GPU's in the draft.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, cast

from kernelwright.policies.inductor.lowering.attention.operands import feeds_attention

if TYPE_CHECKING:
    import torch

    from kernelwright.policies.inductor.graph_types import GraphNode


@functools.lru_cache(maxsize=1)
def lowering_on_gpu() -> Any:
    """Returns Inductor's class for lowering a graph, with these tensors on the GPU and eager's dtypes."""
    import torch
    from torch._inductor import ir
    from torch._inductor.graph import GraphLowering
    from torch._inductor.lowering import to_dtype

    class NumbersOnGPU(GraphLowering):
        def get_attr(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # type: ignore[override]
            constant = super().get_attr(target, args, kwargs)
            held: Any = constant
            while isinstance(held, ir.MutableBox):
                held = held.data
            if isinstance(held, ir.ConstantBuffer | ir.Pointwise):
                placed = held.layout if isinstance(held, ir.ConstantBuffer) else held
                object.__setattr__(placed, "device", torch.device("cuda", 0))
            return constant

        def run_node(self, n: torch.fx.Node) -> Any:
            """Lowers a node, with a cast if Inductor's dtype differs from eager's (`any` of uint8
            is uint8).
            """
            lowered = super().run_node(n)
            if isinstance(lowered, ir.TensorBox) and feeds_attention(cast("GraphNode", n)):
                lowered.realize()  # views of what is not in memory yet would be copied for the operator
            traced = n.meta.get("val") if n.op == "call_function" else None
            if not isinstance(lowered, ir.TensorBox) or not isinstance(traced, torch.Tensor):
                return lowered
            return (
                lowered if lowered.get_dtype() == traced.dtype else to_dtype(lowered, traced.dtype)
            )

        def constant_name(self, name: str, device_override: torch.device | None) -> str:
            return super().constant_name(name, None)  # no copy to the GPU: it will be there

    return NumbersOnGPU

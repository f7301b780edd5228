"""Tensors of numbers that forward has written in it (`torch.tensor([0.3, 0.6, 0.1], device=x.device)`): few are written
into the kernels, more are buffers of the candidate. They were traced on a CPU, and are the GPU's in the draft.
"""

from __future__ import annotations

import functools
from typing import Any


@functools.lru_cache(maxsize=1)
def lowering_on_gpu() -> Any:
    """Inductor's class for lowering a graph, with these tensors on the GPU."""
    import torch
    from torch._inductor import ir
    from torch._inductor.graph import GraphLowering

    class OnGPU(GraphLowering):
        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            made = super().get_attr(target, args, kwargs)
            held: Any = made
            while isinstance(held, ir.MutableBox):
                held = held.data
            if isinstance(held, ir.ConstantBuffer | ir.Pointwise):
                placed = held.layout if isinstance(held, ir.ConstantBuffer) else held
                object.__setattr__(placed, "device", torch.device("cuda", 0))
            return made

        def constant_name(self, name: str, device_override: Any) -> str:
            return super().constant_name(name, None)  # no copy to the GPU: it will be there

    return OnGPU

"""Inductor's own passes, lowering and code generation over a traced graph: its text, before anything is rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelwright.policies.inductor.refusing import Refused
from kernelwright.policies.inductor.tracing import Traced

MOST_CONSTANTS = 1024
"""Numbers that forward may have written in it, in all."""


@dataclass(frozen=True)
class Generated:
    """What Inductor wrote."""

    text: str
    constants: dict[str, Any]
    """Name in the text -> the tensor of numbers that is written in forward."""


def generate(traced: Traced) -> Generated:
    """Raises Refused, and whatever Inductor raises."""
    import torch
    from torch._inductor.compile_fx import _recursive_post_grad_passes
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    with V.set_fake_mode(traced.mode), torch.no_grad():
        _recursive_post_grad_passes(traced.graph, is_inference=True)
        lowering = GraphLowering(
            traced.graph, example_inputs=traced.flat, shape_env=traced.sizes.env, is_inference=True
        )
        with V.set_graph_handler(lowering), V.set_extern_kernel_nodes([]), V.set_debug_handler(DebugContext()):
            lowering.run(*traced.flat)
            wrapper: Any = lowering.codegen()[0]
    constants = dict(lowering.constants)
    if sum(c.numel() for c in constants.values()) > MOST_CONSTANTS:
        raise Refused(f"forward has over {MOST_CONSTANTS} numbers written in it")
    return Generated(str(getattr(wrapper, "value", wrapper)), constants)

"""Inductor's own passes, lowering and code generation over a traced graph: its text, before anything is rewritten."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kernelwright.policies.inductor.refusing import Refused
from kernelwright.policies.inductor.tracing.graph import Traced
from kernelwright.policies.inductor.tracing.loops import tracing_loops

MOST_CONSTANTS = 1024
"""Numbers that forward may have written in it, in all."""


@dataclass(frozen=True)
class Generated:
    """What Inductor wrote."""

    text: str
    constants: dict[str, Any]
    """Name in the text -> the tensor of numbers that is written in forward."""
    bodies: tuple[str, ...] = ()
    """Texts of the steps of loops, in the order of the loops."""


def generate(traced: Traced) -> Generated:
    """Raises Refused, and whatever Inductor raises."""
    assert traced.loops is not None
    with tracing_loops(traced.loops):
        text, constants = _generated(traced.graph, traced.flat, traced)
        bodies = []
        for number, body in enumerate(traced.loops.bodies):
            own, more = _generated(body.graph, body.flat, traced)
            bodies.append(_apart(own, number))
            constants |= {f"step_{number}_{name}": value for name, value in more.items()}
    if sum(c.numel() for c in constants.values()) > MOST_CONSTANTS:
        raise Refused(f"forward has over {MOST_CONSTANTS} numbers written in it")
    return Generated(text, constants, tuple(bodies))


def _apart(text: str, number: int) -> str:
    """The text of a loop's step with kernels, buffers and constants of its own names."""
    text = re.sub(r"\btriton_(?=[a-z]+_fused)", f"triton_step_{number}_", text)
    text = re.sub(r"\b_tensor_constant", f"step_{number}__tensor_constant", text)
    return re.sub(r"\bbuf(\d+)\b", lambda found: f"buf{(number + 1) * 100_000 + int(found[1])}", text)


def _generated(graph: Any, flat: list[Any], traced: Traced) -> tuple[str, dict[str, Any]]:
    import torch
    from torch._inductor.compile_fx import _recursive_post_grad_passes
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    with V.set_fake_mode(traced.mode), torch.no_grad():
        _recursive_post_grad_passes(graph, is_inference=True)
        lowering = GraphLowering(graph, example_inputs=flat, shape_env=traced.sizes.env, is_inference=True)
        with V.set_graph_handler(lowering), V.set_extern_kernel_nodes([]), V.set_debug_handler(DebugContext()):
            lowering.run(*flat)
            wrapper: Any = lowering.codegen()[0]
    return str(getattr(wrapper, "value", wrapper)), dict(lowering.constants)

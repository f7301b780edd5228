"""Inductor's own passes, lowering and code generation over a traced graph: its text, before anything is rewritten."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.decisions.deciding import active_plan, decide
from kernelwright.policies.inductor.decisions.fusions import (
    keeps_loop_order,
    open_scheduled_fusions,
)
from kernelwright.policies.inductor.decisions.plan import WHOLE_GRAPH
from kernelwright.policies.inductor.decisions.sites import scheduled_sites
from kernelwright.policies.inductor.decisions.static_facts import (
    LaunchFacts,
    StaticFacts,
    count_launches,
)
from kernelwright.policies.inductor.lowering.attention.joining import join_attention
from kernelwright.policies.inductor.lowering.concatenations import nested_concatenations
from kernelwright.policies.inductor.lowering.written_numbers import lowering_on_gpu
from kernelwright.policies.inductor.refusing import DraftRefused
from kernelwright.policies.inductor.tracing.graph import TracedModel
from kernelwright.policies.inductor.tracing.loops import tracing_loops

if TYPE_CHECKING:
    import torch
    from torch._inductor.graph import GraphLowering

CHANNELS_LAST, CONTIGUOUS = "channels_last", "contiguous"
MAX_WRITTEN_CONSTANTS = 1024
"""Largest number of written constants in forward, in all."""


@dataclass(frozen=True)
class GeneratedCode:
    """The code Inductor generated."""

    text: str
    constants: dict[str, Any]
    """Name in the text -> the tensor of numbers written in forward."""
    bodies: tuple[str, ...] = ()
    """Texts of the steps of loops, in the order of the loops."""
    channels_last: bool = False
    """The library's convolutions over two axes give their channels last."""
    facts: StaticFacts = field(default_factory=StaticFacts)
    """Counts of all launches; the step of a loop is counted once."""


def generate(traced: TracedModel, code: bool = True) -> GeneratedCode:
    """Generates code for a traced module, whose graphs stay as they are.

    code: False schedules and counts the launches alone, and leaves the texts empty.
    Raises DraftRefused, and Inductor's own exceptions.
    """
    assert traced.loops is not None
    active = active_plan()
    with tracing_loops(traced.loops):
        lowered = _generated(traced.graph, traced.flat, traced, code)
        constants, launches = dict(lowered.constants), list(lowered.launches)
        bodies = []
        for number, body in enumerate(traced.loops.bodies):
            if active is not None:
                active.step = f"step_{number}/"
            step = _generated(body.graph, body.flat, traced, code)
            # Kernels, buffers and constants of a step get names of their own: all texts end in
            # one file.
            bodies.append(_with_names_of_step(step.text, number))
            constants |= {f"step_{number}_{name}": value for name, value in step.constants.items()}
            launches += step.launches
    if sum(c.numel() for c in constants.values()) > MAX_WRITTEN_CONSTANTS:
        raise DraftRefused(
            f"forward makes tensors of over {MAX_WRITTEN_CONSTANTS:,} numbers: make them inputs or buffers"
        )
    facts = StaticFacts(launches=tuple(launches))
    return GeneratedCode(lowered.text, constants, tuple(bodies), lowered.channels_last, facts)


def _with_names_of_step(text: str, number: int) -> str:
    """The text of a loop's step with kernels, buffers and constants of its own names."""
    text = re.sub(r"\btriton_(?=[a-z]+_fused)", f"triton_step_{number}_", text)
    text = re.sub(r"\b_tensor_constant", f"step_{number}__tensor_constant", text)
    return re.sub(
        r"\bbuf(\d+)\b", lambda match: f"buf{(number + 1) * 100_000 + int(match[1])}", text
    )


@dataclass(frozen=True)
class _LoweredGraph:
    """Text, constants and launches of one graph: forward's own, or the step of a loop."""

    text: str
    constants: dict[str, Any]
    channels_last: bool
    launches: list[LaunchFacts]


def _generated(
    traced_graph: torch.fx.GraphModule, flat: list[Any], traced: TracedModel, code: bool
) -> _LoweredGraph:
    import torch
    from torch._inductor import config
    from torch._inductor.compile_fx import _recursive_post_grad_passes
    from torch._inductor.debug import DebugContext
    from torch._inductor.virtualized import V

    # The passes change a graph in place: they get a copy, so that it can be lowered again.
    graph = torch.fx.GraphModule(traced_graph, copy.deepcopy(traced_graph.graph))
    loop_ordering = config.loop_ordering_after_fusion and not keeps_loop_order()
    with (
        V.set_fake_mode(traced.mode),
        torch.no_grad(),
        config.patch(loop_ordering_after_fusion=loop_ordering),
    ):
        # Passes over the graph, then Inductor's lowering, scheduling and code generation.
        join_attention(graph, traced.mode, traced.for_gpu)
        nested_concatenations(graph)
        _recursive_post_grad_passes(graph, is_inference=True)
        _plain_output_strides(graph, traced)
        _round_at_casts(graph)
        layout = channels_last(graph)
        lowering = lowering_on_gpu()(
            graph,
            example_inputs=flat,
            shape_env=traced.sizes.env,
            is_inference=True,
            layout_opt=layout,
        )
        with (
            V.set_graph_handler(lowering),
            V.set_extern_kernel_nodes([]),
            V.set_debug_handler(DebugContext()),
        ):
            lowering.run(*flat)
            text, launches = _scheduled(lowering, code)
    return _LoweredGraph(text, dict(lowering.constants), layout, launches)


def _scheduled(lowering: GraphLowering, code: bool) -> tuple[str, list[LaunchFacts]]:
    """Schedules a lowered graph. Returns its code, if wanted, and its launches, if a plan is being lowered."""
    text = ""
    if code:
        wrapper: Any = lowering.codegen()[0]
        text = str(getattr(wrapper, "value", wrapper))
    else:
        lowering.init_wrapper_code()
        lowering._update_scheduler()
    active = active_plan()
    if active is None:
        return text, []
    open_scheduled_fusions(lowering.scheduler, active)
    return text, count_launches(lowering.scheduler, scheduled_sites(lowering.scheduler))


def _round_at_casts(graph: torch.fx.GraphModule) -> None:
    """Has casts to a half precision round, as in eager, although the kernel computes in fp32.

    Inductor keeps half precision in fp32 registers, so that `x.to(torch.bfloat16).float()` would be
    `x`. It rounds at nodes that torch marks for `emulate_precision_casts`; casts alone are marked
    here, because between other operators of half precision the unrounded value is more accurate.
    """
    import torch

    for node in graph.graph.find_nodes(
        op="call_function", target=torch.ops.prims.convert_element_type.default
    ):
        if node.args[1] in (torch.bfloat16, torch.float16):
            node.meta["low_precision_pointwise_barrier"] = True


def _plain_output_strides(graph: torch.fx.GraphModule, traced: TracedModel) -> None:
    """Contiguous strides are products of max(1, size), for tensors without elements, which are never read: without it
    an index is a sum that axes can be merged in.
    """
    from kernelwright.policies.inductor.inductor_patches import drop_maxima

    env = traced.sizes.env
    (output,) = [n for n in graph.graph.nodes if n.op == "output"]
    for node in (
        output.args[0] or ()
    ):  # a step of a loop gives nothing, and writes into its arguments
        value: Any = getattr(node, "meta", {}).get("val")
        if not hasattr(value, "stride"):
            continue
        strides = []
        for stride in value.stride():
            expression = getattr(getattr(stride, "node", None), "expr", None)
            plain = expression if expression is None else drop_maxima(expression)
            same = expression is None or plain == expression
            strides.append(stride if same else env.create_symintnode(plain, hint=stride.node.hint))
        if any(a is not b for a, b in zip(strides, value.stride(), strict=True)):
            node.meta["val"] = value.new_empty_strided(value.shape, strides)


def channels_last(graph: torch.fx.GraphModule) -> bool:
    """Returns whether library convolutions use channels last, as torch.compile does for numeric
    sizes.

    Channels last are used for two spatial axes, except for groups of several channels, which are
    slower so.
    """
    import torch
    from torch._inductor import config

    if config.triton.native_matmul:
        return False
    aten = torch.ops.aten
    convolutions = [n for n in graph.graph.nodes if n.target is aten.convolution.default]
    weights = [n.args[1].meta["val"] for n in convolutions]
    if not any(w.dim() == 4 for w in weights):
        return False
    grouped = any(
        n.args[8] != 1 and w.shape[1] != 1 for n, w in zip(convolutions, weights, strict=True)
    )
    default = CONTIGUOUS if grouped else CHANNELS_LAST
    layout = decide("layout", WHOLE_GRAPH, default, (CHANNELS_LAST, CONTIGUOUS))
    return layout == CHANNELS_LAST

"""Writes a problem that is one attention as a flash attention kernel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelwright.policies.transformations.attention_pattern import (
    Attention,
    MaskKind,
    find_attention,
)
from kernelwright.policies.transformations.exporting import ExportedModel, NotTransformed, plain
from kernelwright.policies.transformations.flash_template import attention_text
from kernelwright.policies.transformations.host_text import HostText

if TYPE_CHECKING:
    from kernelwright.policies.inductor.graph_types import GraphNode

HEADER = """# One flash attention kernel (kernelwright). Block sizes are not tuned.
import torch
import torch.nn as nn
import triton
import triton.language as tl


"""
SUPPORTED_RANKS = (2, 3, 4)
MAX_HEAD_SIZE = 256
"""Columns of a head, in the problem as it is given: a block of queries keeps a row of the result in registers. Wider
ones spill, and take Triton more than half a minute to compile; torch's own flash kernel ends there, too.
"""


def write_attention(exported: ExportedModel) -> str:
    """Returns the candidate's text. Raises NotTransformed."""
    plain(exported)
    attention = find_attention(exported.graph)
    ranks = {node.meta["val"].dim() for node in (attention.query, attention.key, attention.value)}
    if not ranks <= set(SUPPORTED_RANKS) or len(ranks) != 1:
        raise NotTransformed(f"operands of {sorted(ranks)} axes")
    if not attention.query.meta["val"].dtype.is_floating_point or _widest(attention) > 8:
        raise NotTransformed("operands that are no floating-point numbers of at most 32 bits")
    widest = (
        MAX_HEAD_SIZE if _widest(attention) <= 4 else MAX_HEAD_SIZE // 2
    )  # 256 of fp32 ask an H100 for 256 KB a block
    if (wide := max(_columns(attention.query), _columns(attention.value))) > widest:
        raise NotTransformed(f"heads of {wide} columns, more than {widest}")
    names = exported.names
    host = HostText(names, {})
    call = _call(attention, host)
    inner = HostText(names, {attention.output: call})
    inner.lines = host.lines
    outputs = next(n for n in exported.graph.nodes if n.op == "output").args[0]
    if len(outputs) != 1:
        raise NotTransformed("more than one output")
    returned = inner.of(outputs[0])
    body = "".join(f"        {line}\n" for line in inner.lines)
    text = attention_text(
        causal=attention.causal,
        mask_kind=int(attention.mask_kind),
        fill=attention.fill,
        zero_rows=attention.zero_rows,
    )
    module = (
        "class ModelNew(nn.Module):\n"
        f"    def forward(self, {', '.join(exported.inputs)}):\n{body}        return {returned}\n"
    )
    return f"{HEADER}{text}\n\n{module}"


def _columns(node: GraphNode) -> int:
    """Returns the number of columns at the problem's own sizes; 0 if unknown."""
    extent = node.meta["val"].shape[-1]
    hint = extent if isinstance(extent, int) else getattr(extent.node, "hint", None)
    return 0 if hint is None else int(hint)


def _widest(attention: Attention) -> int:
    return (
        max(
            int(n.meta["val"].element_size())
            for n in (attention.query, attention.key, attention.value)
        )
        * 2
    )


def _call(attention: Attention, host: HostText) -> str:
    key = host.of(attention.key) + (".transpose(-2, -1)" if attention.key_transposed else "")
    arguments = [host.of(attention.query), key, host.of(attention.value), _scale(attention, host)]
    if attention.mask_kind is not MaskKind.NONE:
        arguments.append(host.of(attention.mask))
    return f"flash_attention({', '.join(arguments)})"


def _scale(attention: Attention, host: HostText) -> str:
    """Returns the factor of the scores, as an expression of sizes if torch recorded one.

    `math.sqrt` of a size makes torch.export fix that size as a number. If the size is a number
    and the factor is
    1 / sqrt(size), the expression of the size is written. A factor written as a number leaves the
    size a symbol.
    """
    query = host.of(attention.query)
    usual = f"{query}.shape[-1] ** -0.5"
    if attention.default_scale:
        return usual
    if not attention.scales:
        return "1.0"
    numbers = [value for _, value in attention.scales]
    if len(numbers) == 1 and not hasattr(numbers[0], "users"):
        factor = float(numbers[0]) if attention.scales[0][0] == "*" else 1 / float(numbers[0])
        extent = attention.query.meta["val"].shape[-1]
        extent = extent if isinstance(extent, int) else extent.node.maybe_as_int()
        if extent is not None and math.isclose(factor, extent**-0.5, rel_tol=1e-6):
            return usual
    written = "1.0"
    for sign, value in attention.scales:
        text = host.of(value)
        written = f"{written} {sign} {f'({text})' if ' ' in text else text}"
    return written.removeprefix("1.0 * ")

"""A problem that is one attention, written as one flash kernel."""

from __future__ import annotations

import math
from typing import Any

from kernelwright.policies.transformations.attention_pattern import (
    Attention,
    MaskKind,
    find_attention,
)
from kernelwright.policies.transformations.exporting import ExportedModel, NotTransformed, plain
from kernelwright.policies.transformations.flash_template import attention_text
from kernelwright.policies.transformations.host_text import HostText

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
    found = find_attention(exported.graph)
    ranks = {node.meta["val"].dim() for node in (found.query, found.key, found.value)}
    if not ranks <= set(SUPPORTED_RANKS) or len(ranks) != 1:
        raise NotTransformed(f"operands of {sorted(ranks)} axes")
    if not found.query.meta["val"].dtype.is_floating_point or _widest(found) > 8:
        raise NotTransformed("operands that are no floating-point numbers of at most 32 bits")
    widest = (
        MAX_HEAD_SIZE if _widest(found) <= 4 else MAX_HEAD_SIZE // 2
    )  # 256 of fp32 ask an H100 for 256 KB a block
    if (wide := max(_columns(found.query), _columns(found.value))) > widest:
        raise NotTransformed(f"heads of {wide} columns, more than {widest}")
    names = exported.names
    host = HostText(names, {})
    call = _call(found, host)
    inner = HostText(names, {found.output: call})
    inner.lines = host.lines
    outputs = next(n for n in exported.graph.nodes if n.op == "output").args[0]
    if len(outputs) != 1:
        raise NotTransformed("more than one output")
    returned = inner.of(outputs[0])
    body = "".join(f"        {line}\n" for line in inner.lines)
    text = attention_text(
        causal=found.causal,
        mask_kind=int(found.mask_kind),
        fill=found.fill,
        zero_rows=found.zero_rows,
    )
    module = (
        "class ModelNew(nn.Module):\n"
        f"    def forward(self, {', '.join(exported.inputs)}):\n{body}        return {returned}\n"
    )
    return f"{HEADER}{text}\n\n{module}"


def _columns(node: Any) -> int:
    """Returns the columns of the problem as it is given, where they are known."""
    extent = node.meta["val"].shape[-1]
    hint = extent if isinstance(extent, int) else getattr(extent.node, "hint", None)
    return 0 if hint is None else int(hint)


def _widest(found: Attention) -> int:
    return max(int(n.meta["val"].element_size()) for n in (found.query, found.key, found.value)) * 2


def _call(found: Attention, host: HostText) -> str:
    key = host.of(found.key) + (".transpose(-2, -1)" if found.key_transposed else "")
    arguments = [host.of(found.query), key, host.of(found.value), _scale(found, host)]
    if found.mask_kind is not MaskKind.NONE:
        arguments.append(host.of(found.mask))
    return f"flash_attention({', '.join(arguments)})"


def _scale(found: Attention, host: HostText) -> str:
    """The factor of the scores, as an expression of sizes where torch kept it as one.

    `math.sqrt` of a size makes torch.export take that size for a number; where a size is one, and the factor is its
    root, the root was meant. A factor that is written as a number leaves the size a symbol.
    """
    query = host.of(found.query)
    usual = f"{query}.shape[-1] ** -0.5"
    if found.default_scale:
        return usual
    if not found.scales:
        return "1.0"
    numbers = [value for _, value in found.scales]
    if len(numbers) == 1 and not hasattr(numbers[0], "users"):
        factor = float(numbers[0]) if found.scales[0][0] == "*" else 1 / float(numbers[0])
        extent = found.query.meta["val"].shape[-1]
        extent = extent if isinstance(extent, int) else extent.node.maybe_as_int()
        if extent is not None and math.isclose(factor, extent**-0.5, rel_tol=1e-6):
            return usual
    written = "1.0"
    for sign, value in found.scales:
        told = host.of(value)
        written = f"{written} {sign} {f'({told})' if ' ' in told else told}"
    return written.removeprefix("1.0 * ")

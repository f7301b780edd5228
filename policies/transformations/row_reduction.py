"""Writes a reduction over few long rows in two stages.

With a program per row most of the GPU would be idle: each row is cut into parts, and a second
launch joins them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.policies.transformations.exporting import (
    ExportedModel,
    NotTransformed,
    name_of,
    plain,
    size_of,
)

if TYPE_CHECKING:
    from kernelwright.policies.inductor.graph_types import GraphNode

MAX_ROWS = 512
"""About as many programs as keep a large GPU busy."""
MIN_ROW_ELEMENTS = 1 << 14


class _Kind:
    """How a reduction starts, joins and ends."""

    def __init__(self, start: str, join: str, fold: str, end: str = "{}") -> None:
        self.start, self.join, self.fold, self.end = start, join, fold, end


REDUCTION_KINDS = {
    "sum": _Kind("0.0", "{0} + {1}", "tl.sum({0}, axis=0)"),
    "mean": _Kind("0.0", "{0} + {1}", "tl.sum({0}, axis=0)", "{} / columns"),
    "amax": _Kind('-float("inf")', "larger({0}, {1})", "tl.reduce({0}, 0, larger)"),
    "amin": _Kind('float("inf")', "smaller({0}, {1})", "tl.reduce({0}, 0, smaller)"),
}

EXTREMES = {
    "amax": '''@triton.jit
def larger(a, b):
    """The larger one; NaN where there is one."""
    return tl.where((a > b) | (a != a), a, b)


''',
    "amin": '''@triton.jit
def smaller(a, b):
    """The smaller one; NaN where there is one."""
    return tl.where((a < b) | (a != a), a, b)


''',
}

ROW_REDUCTION_TEXT = '''# A reduction of few long rows in two stages (kernelwright). Block sizes are not tuned.
import torch
import torch.nn as nn
import triton
import triton.language as tl


{extremes}@triton.jit
def part_kernel(x_pointer, part_pointer, columns, parts, steps, BLOCK: tl.constexpr):
    """One part of one row: `steps` blocks that follow each other."""
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1).to(tl.int64) * steps * BLOCK
    found = tl.full((BLOCK,), {start}, tl.float32)
    for step in range(0, steps):
        column = first + step * BLOCK + tl.arange(0, BLOCK)
        exists = column < columns
        x = tl.load(x_pointer + row * columns + column, mask=exists, other={start}).to(tl.float32)
        found = {join_block}
    tl.store(part_pointer + row * parts + tl.program_id(1), {fold_block})


@triton.jit
def join_kernel(part_pointer, out_pointer, columns, parts, PARTS: tl.constexpr):
    """The parts of one row."""
    row = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, PARTS)
    found = tl.load(part_pointer + row * parts + number, mask=number < parts, other={start})
    total = {fold_parts}
    tl.store(out_pointer + row, ({end}).to(out_pointer.dtype.element_ty))


class ModelNew(nn.Module):
    def forward(self, {name}):
        x = {name}.contiguous(){flat}
        columns = x.shape[-1]
        rows = x.numel() // columns
        steps = max(1, min(16, triton.cdiv(columns, 8192)))
        parts = triton.cdiv(columns, 2048 * steps)
        part = torch.empty((rows, parts), device=x.device, dtype=torch.float32)
        out = torch.empty({shape}, device=x.device, dtype=x.dtype)
        part_kernel[(rows, parts)](x, part, columns, parts, steps, BLOCK=2048, num_warps=8)
        join_kernel[(rows,)](part, out, columns, parts, PARTS=triton.next_power_of_2(parts), num_warps=4)
        return out
'''


@dataclass(frozen=True)
class RowReduction:
    """A graph whose only operator is a reduction."""

    kind: str
    keeps: bool
    """Whether the reduced axis stays, with one element."""
    whole: bool
    """Whether all axes are reduced."""


def write_row_reduction(exported: ExportedModel) -> str:
    """Returns the candidate's text. Raises NotTransformed."""
    plain(exported)
    reduction = _find(exported)
    kind = REDUCTION_KINDS[reduction.kind]
    shape = "()" if reduction.whole else "(*x.shape[:-1], 1)" if reduction.keeps else "x.shape[:-1]"
    return ROW_REDUCTION_TEXT.format(
        extremes=EXTREMES.get(reduction.kind, ""), start=kind.start, name=exported.inputs[0],
        flat=".reshape(-1)" if reduction.whole else "", join_block=kind.join.format("found", "x"),
        fold_block=kind.fold.format("found"), fold_parts=kind.fold.format("found"), end=kind.end.format("total"),
        shape=shape,
    )  # fmt: skip


def _find(exported: ExportedModel) -> RowReduction:
    nodes = list(exported.graph.nodes)
    calls = [node for node in nodes if node.op == "call_function"]
    if len(calls) != 1 or name_of(calls[0]) not in REDUCTION_KINDS or len(exported.inputs) != 1:
        raise NotTransformed("the graph is more than one reduction of one tensor")
    (node,) = calls
    value = node.args[0].meta["val"]
    axes = _axes(node, value.dim())
    whole = len(axes) == value.dim()
    if (
        not value.dtype.is_floating_point
        or value.element_size() > 4
        or node.kwargs.get("dtype") is not None
    ):
        raise NotTransformed("it is no reduction of floating-point numbers of at most 32 bits")
    if not whole and axes != [value.dim() - 1]:
        raise NotTransformed("it is not the last axis that is reduced")
    keeps = len(node.args) > 2 and bool(node.args[2])
    if whole and keeps:
        raise NotTransformed("the reduced axes are kept")
    columns = size_of(value.numel()) if whole else size_of(value.shape[-1])
    rows = 1 if whole else size_of(value.numel()) // max(1, columns)
    if rows > MAX_ROWS or columns < MIN_ROW_ELEMENTS:
        raise NotTransformed(f"{rows} rows of {columns} are not few long rows")
    return RowReduction(name_of(node), keeps, whole)


def _axes(node: GraphNode, rank: int) -> list[int]:
    axes = node.args[1] if len(node.args) > 1 else None
    return sorted(axis % rank for axis in axes) if axes else list(range(rank))

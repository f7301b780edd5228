"""Writes a product of small matrices over a long axis, split over that axis (split-K).

With a program per tile of the result most of the GPU would be idle, and each number would sum
hundreds of thousands
of products.
"""

from __future__ import annotations

from typing import Any

from kernelwright.policies.transformations.exporting import (
    ExportedModel,
    NotTransformed,
    name_of,
    plain,
    size_of,
)
from kernelwright.policies.transformations.host_text import HostText

PRODUCT_TILE = 64
MAX_TILES = 66
"""Tiles of the result up to which the long axis is split: half as many as a large GPU has multiprocessors."""
LONG_AXIS = 1 << 13

TEXT_BEGIN = '''# A product split over its long axis, in two stages (kernelwright). Block sizes are not tuned.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part_kernel(
    left_pointer, right_pointer, part_pointer, rows, columns, depth, share,
    left_row, left_step, right_step, right_column,
    ROW_BLOCK: tl.constexpr, COLUMN_BLOCK: tl.constexpr, STEP_BLOCK: tl.constexpr,
):
    """One tile of the result over one share of the long axis."""
    row = (tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)).to(tl.int64)
    column = (tl.program_id(1) * COLUMN_BLOCK + tl.arange(0, COLUMN_BLOCK)).to(tl.int64)
    first = tl.program_id(2).to(tl.int64) * share
    end = tl.minimum(first + share, depth)
    found = tl.zeros((ROW_BLOCK, COLUMN_BLOCK), tl.float32)
    for begin in range(first, end, STEP_BLOCK):
        step = begin + tl.arange(0, STEP_BLOCK).to(tl.int64)
        left = tl.load(
            left_pointer + row[:, None] * left_row + step[None, :] * left_step,
            mask=(row < rows)[:, None] & (step < end)[None, :], other=0.0,
        )
        right = tl.load(
            right_pointer + step[:, None] * right_step + column[None, :] * right_column,
            mask=(step < end)[:, None] & (column < columns)[None, :], other=0.0,
        )
        found = tl.dot(left, right, found, input_precision="ieee")
    place = (tl.program_id(2).to(tl.int64) * rows + row[:, None]) * columns + column[None, :]
    tl.store(part_pointer + place, found, mask=(row < rows)[:, None] & (column < columns)[None, :])


'''
JOIN_PARTS = '''@triton.jit
def join_kernel(part_pointer, out_pointer, size, parts, BLOCK: tl.constexpr):
    """The parts of every element, always in the same order."""
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = element < size
    found = tl.zeros((BLOCK,), tl.float32)
    for part in range(0, parts):
        found += tl.load(part_pointer + part * size + element, mask=exists, other=0.0)
    tl.store(out_pointer + element, found.to(out_pointer.dtype.element_ty), mask=exists)


'''
"""Kernel that adds the partial results of all shares of the long axis."""
TEXT_END = '''def share_of(rows, columns, depth):
    """Steps of the long axis that one program takes, so that about {programs} programs are at work."""
    tiles = triton.cdiv(rows, {tile}) * triton.cdiv(columns, {tile})
    parts = max(1, min({programs} // tiles, triton.cdiv(depth, 1024)))
    return triton.cdiv(triton.cdiv(depth, parts), 128) * 128


def block_for(extent, most):
    """A power of two that holds the extent, at least what a product needs."""
    return min(most, max(16, triton.next_power_of_2(extent)))


class ModelNew(nn.Module):
    def forward(self, {inputs}):
{lines}        left, right = {left}, {right}
        (rows, depth), columns = left.shape, right.shape[1]
        share = share_of(rows, columns, depth)
        parts = triton.cdiv(depth, share)
        part = torch.empty((parts, rows, columns), device=left.device, dtype=torch.float32)
        out = torch.empty((rows, columns), device=left.device, dtype=left.dtype)
        grid = lambda block: (triton.cdiv(rows, block["ROW_BLOCK"]), triton.cdiv(columns, block["COLUMN_BLOCK"]), parts)
        part_kernel[grid](
            left, right, part, rows, columns, depth, share, *left.stride(), *right.stride(),
            ROW_BLOCK=block_for(rows, 64), COLUMN_BLOCK=block_for(columns, 64), STEP_BLOCK=32,
            num_warps=4, num_stages=3,
        )
        join_kernel[lambda block: (triton.cdiv(rows * columns, block["BLOCK"]),)](
            part, out, rows * columns, parts, BLOCK=256, num_warps=4,
        )
        return out
'''
TEXT = TEXT_BEGIN + JOIN_PARTS + TEXT_END
SPLIT_PRODUCT_PROGRAMS = 528
"""Four for each multiprocessor of a large GPU."""


def write_split_product(exported: ExportedModel) -> str:
    """Returns the candidate's text. Raises NotTransformed."""
    plain(exported)
    product = _find(exported)
    host = HostText(exported.names, {})
    left, right = host.of(product.args[0]), host.of(product.args[1])
    lines = "".join(f"        {line}\n" for line in host.lines)
    return TEXT.format(
        inputs=", ".join(exported.inputs),
        lines=lines,
        left=left,
        right=right,
        tile=PRODUCT_TILE,
        programs=SPLIT_PRODUCT_PROGRAMS,
    )


def _find(exported: ExportedModel) -> Any:
    """Returns the node of the product. Raises NotTransformed."""
    output = next(n for n in exported.graph.nodes if n.op == "output").args[0]
    if len(output) != 1 or name_of(output[0]) not in ("matmul", "mm"):
        raise NotTransformed("what is returned is not one product")
    left, right = (node.meta["val"] for node in output[0].args)
    if left.dim() != 2 or right.dim() != 2:
        raise NotTransformed("the product is not one of two matrices")
    if left.dtype != right.dtype or not left.dtype.is_floating_point or left.element_size() > 4:
        raise NotTransformed("it is no product of floating-point numbers of at most 32 bits")
    rows, depth, columns = size_of(left.shape[0]), size_of(left.shape[1]), size_of(right.shape[1])
    tiles = -(-rows // PRODUCT_TILE) * -(-columns // PRODUCT_TILE)
    if tiles > MAX_TILES or depth < LONG_AXIS:
        raise NotTransformed(f"a result of {rows} by {columns} over {depth} steps keeps a GPU busy")
    return output[0]

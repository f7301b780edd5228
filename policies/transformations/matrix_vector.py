"""Writes a matrix-vector product that is split over the long axis.

With a program per row, few rows would leave most of the GPU idle; tiles of a matrix product would
load fifteen
columns that do not exist.
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
from kernelwright.policies.transformations.split_product import JOIN_PARTS

MIN_STEPS = 1 << 10
MIN_MATRIX_ELEMENTS = 1 << 20
"""Elements of the matrix from which on it is split: smaller ones take as long as a launch does."""

MATRIX_VECTOR_TEXT = (
    '''# A product of a matrix and a vector in two stages (kernelwright). Block sizes are not tuned.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part_kernel(
    matrix_pointer, vector_pointer, part_pointer, rows, depth, share, matrix_row, matrix_step, vector_step,
    ROW_BLOCK: tl.constexpr, STEP_BLOCK: tl.constexpr,
):
    """Several rows over one share of the long axis."""
    row = (tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)).to(tl.int64)
    first = tl.program_id(1).to(tl.int64) * share
    end = tl.minimum(first + share, depth)
    found = tl.zeros((ROW_BLOCK, STEP_BLOCK), tl.float32)
    for begin in range(first, end, STEP_BLOCK):
        step = begin + tl.arange(0, STEP_BLOCK).to(tl.int64)
        exists = step < end
        vector = tl.load(vector_pointer + step * vector_step, mask=exists, other=0.0).to(tl.float32)
        matrix = tl.load(
            matrix_pointer + row[:, None] * matrix_row + step[None, :] * matrix_step,
            mask=(row < rows)[:, None] & exists[None, :], other=0.0,
        )
        found += matrix.to(tl.float32) * vector[None, :]
    tl.store(part_pointer + tl.program_id(1).to(tl.int64) * rows + row, tl.sum(found, axis=1), mask=row < rows)


'''
    + JOIN_PARTS
    + '''def share_of(rows, depth):
    """Steps of the long axis that one program takes, so that about {programs} programs are at work."""
    parts = max(1, min({programs} // triton.cdiv(rows, 4), triton.cdiv(depth, 4096)))
    return triton.cdiv(triton.cdiv(depth, parts), 1024) * 1024


class ModelNew(nn.Module):
    def forward(self, {inputs}):
{lines}        matrix, vector = {matrix}, {vector}
        rows, depth = matrix.shape
        share = share_of(rows, depth)
        parts = triton.cdiv(depth, share)
        part = torch.empty((parts, rows), device=matrix.device, dtype=torch.float32)
        out = torch.empty({shape}, device=matrix.device, dtype=matrix.dtype)
        part_kernel[lambda block: (triton.cdiv(rows, block["ROW_BLOCK"]), parts)](
            matrix, vector, part, rows, depth, share, *matrix.stride(), vector.stride(0),
            ROW_BLOCK=4, STEP_BLOCK=1024, num_warps=8,
        )
        join_kernel[lambda block: (triton.cdiv(rows, block["BLOCK"]),)](part, out, rows, parts, BLOCK=256, num_warps=4)
        return out
'''
)
MATRIX_VECTOR_PROGRAMS = 1056
"""Eight for each multiprocessor of a large GPU."""


def write_matrix_vector(exported: ExportedModel) -> str:
    """Returns the candidate's text. Raises NotTransformed."""
    plain(exported)
    product = _find(exported)
    host = HostText(exported.names, {})
    matrix, vector = host.of(product.args[0]), host.of(product.args[1])
    lines = "".join(f"        {line}\n" for line in host.lines)
    shape = "(rows,)" if product.meta["val"].dim() == 1 else "(rows, 1)"
    return MATRIX_VECTOR_TEXT.format(
        inputs=", ".join(exported.inputs),
        lines=lines,
        matrix=matrix,
        vector=vector,
        shape=shape,
        programs=MATRIX_VECTOR_PROGRAMS,
    )


def _find(exported: ExportedModel) -> Any:
    """Returns the node of the product. Raises NotTransformed."""
    output = next(n for n in exported.graph.nodes if n.op == "output").args[0]
    if len(output) != 1 or name_of(output[0]) not in ("matmul", "mm", "mv"):
        raise NotTransformed("what is returned is not one product")
    matrix, vector = (node.meta["val"] for node in output[0].args[:2])
    single = vector.dim() == 1 or (
        vector.dim() == 2 and isinstance(vector.shape[1], int) and vector.shape[1] == 1
    )
    if matrix.dim() != 2 or not single:
        raise NotTransformed("the product is not one of a matrix and a vector")
    if (
        matrix.dtype != vector.dtype
        or not matrix.dtype.is_floating_point
        or matrix.element_size() > 4
    ):
        raise NotTransformed("it is no product of floating-point numbers of at most 32 bits")
    rows, depth = size_of(matrix.shape[0]), size_of(matrix.shape[1])
    if depth < MIN_STEPS or rows * depth < MIN_MATRIX_ELEMENTS:
        raise NotTransformed(f"{rows} rows of {depth} are soon multiplied")
    return output[0]

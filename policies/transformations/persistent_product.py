"""Writes a large half-precision product as a persistent kernel.

There are as many programs as the GPU has multiprocessors. Each computes one tile of the result
after the other, and
reads its operands through tensor descriptors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelwright.policies.transformations.attention_pattern import name_of
from kernelwright.policies.transformations.exporting import ExportedModel, NotTransformed, size_of
from kernelwright.policies.transformations.host_text import HostText, candidate_text
from kernelwright.policies.transformations.linear_sum import operands_of
from kernelwright.policies.transformations.reduced_linear import expression_of_step

if TYPE_CHECKING:
    from kernelwright.policies.inductor.graph_types import GraphNode

TILE = (128, 256)
MIN_TILES = 264
"""Tiles of the result below which a launch for each is as fast: two for each multiprocessor of a large GPU."""
MAX_PLAIN_TILES = 1024
"""Tiles of the result above which a product of two matrices that lie row by row is left to the compiler's draft, which
was faster by 4 to 8 % on an H200 (bench/results/persistent_products.md).
"""
MIN_STEPS = 1024
"""Length of the summed axis below which writing the result takes most of the time."""
ALIGNMENT = 8
"""Elements of half precision in 16 bytes."""
HALF_TYPES = ("torch.float16", "torch.bfloat16")

HEAD = """# A large product by persistent programs (kernelwright). Block sizes are not tuned.
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""
KERNEL = '''@triton.jit
def persistent_product_kernel(
    left_pointer, right_pointer, bias_pointer, out_pointer, rows, columns, depth, left_stride, right_stride,
    HAS_BIAS: tl.constexpr, LEFT_TURNED: tl.constexpr, RIGHT_TURNED: tl.constexpr, DESCRIBED: tl.constexpr,
    ROW_BLOCK: tl.constexpr, COLUMN_BLOCK: tl.constexpr, STEP_BLOCK: tl.constexpr, GROUP: tl.constexpr,
):
    """Tiles of the result, every so many of them by one program. What is turned lies in memory as its transpose."""
    if DESCRIBED:
        if LEFT_TURNED:
            left_tiles = tl.make_tensor_descriptor(
                left_pointer, [depth, rows], [left_stride, 1], [STEP_BLOCK, ROW_BLOCK]
            )
        else:
            left_tiles = tl.make_tensor_descriptor(
                left_pointer, [rows, depth], [left_stride, 1], [ROW_BLOCK, STEP_BLOCK]
            )
        if RIGHT_TURNED:
            right_tiles = tl.make_tensor_descriptor(
                right_pointer, [columns, depth], [right_stride, 1], [COLUMN_BLOCK, STEP_BLOCK]
            )
        else:
            right_tiles = tl.make_tensor_descriptor(
                right_pointer, [depth, columns], [right_stride, 1], [STEP_BLOCK, COLUMN_BLOCK]
            )
    tile_rows, tile_columns = tl.cdiv(rows, ROW_BLOCK), tl.cdiv(columns, COLUMN_BLOCK)
    for tile in tl.range(tl.program_id(0), tile_rows * tile_columns, tl.num_programs(0)):
        # Tiles of GROUP rows of tiles follow one another, so that they share operands in the cache.
        first = tile // (GROUP * tile_columns) * GROUP
        height = tl.minimum(tile_rows - first, GROUP)
        place = tile % (GROUP * tile_columns)
        row_begin, column_begin = (first + place % height) * ROW_BLOCK, place // height * COLUMN_BLOCK
        row = (row_begin + tl.arange(0, ROW_BLOCK)).to(tl.int64)
        column = (column_begin + tl.arange(0, COLUMN_BLOCK)).to(tl.int64)
        value = tl.zeros((ROW_BLOCK, COLUMN_BLOCK), tl.float32)
        for begin in range(0, depth, STEP_BLOCK):
            if DESCRIBED:
                if LEFT_TURNED:
                    left = left_tiles.load([begin, row_begin]).T
                else:
                    left = left_tiles.load([row_begin, begin])
                if RIGHT_TURNED:
                    right = right_tiles.load([column_begin, begin]).T
                else:
                    right = right_tiles.load([begin, column_begin])
            else:
                step = (begin + tl.arange(0, STEP_BLOCK)).to(tl.int64)
                left_row, left_step = (1, left_stride) if LEFT_TURNED else (left_stride, 1)
                right_step, right_column = (1, right_stride) if RIGHT_TURNED else (right_stride, 1)
                left = tl.load(
                    left_pointer + row[:, None] * left_row + step[None, :] * left_step,
                    mask=(row < rows)[:, None] & (step < depth)[None, :], other=0.0,
                )
                right = tl.load(
                    right_pointer + step[:, None] * right_step + column[None, :] * right_column,
                    mask=(step < depth)[:, None] & (column < columns)[None, :], other=0.0,
                )
            value = tl.dot(left, right, value)
        if HAS_BIAS:
            value += tl.load(bias_pointer + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
{chain}        tl.store(
            out_pointer + row[:, None] * columns + column[None, :], value.to(out_pointer.dtype.element_ty),
            mask=(row < rows)[:, None] & (column < columns)[None, :],
        )
'''
HELPERS = '''def rows_of(matrix):
    """The matrix, or its transpose, so that rows lie whole in memory; and whether it is the transpose."""
    if matrix.stride(1) == 1:
        return matrix, False
    if matrix.stride(0) == 1:
        return matrix.transpose(0, 1), True
    return matrix.contiguous(), False


def is_aligned(matrix):
    """Whether rows begin at whole 16 bytes, as a tensor descriptor needs."""
    return matrix.stride(0) % 8 == 0 and matrix.storage_offset() % 8 == 0


def allocate(size, alignment, stream):
    """Memory for the descriptors."""
    return torch.empty(size, device="cuda", dtype=torch.int8)
'''
HOST = """x = {x}
left, left_turned = rows_of(x.reshape(-1, x.shape[-1]))
right, right_turned = rows_of({weight})
(rows, depth), columns = x.reshape(-1, x.shape[-1]).shape, {columns}
out = torch.empty((*x.shape[:-1], columns), device=x.device, dtype=x.dtype)
triton.set_allocator(allocate)
programs = torch.cuda.get_device_properties(x.device).multi_processor_count
tiles = lambda block: triton.cdiv(rows, block["ROW_BLOCK"]) * triton.cdiv(columns, block["COLUMN_BLOCK"])
persistent_product_kernel[lambda block: (min(programs, tiles(block)),)](
    left, right, {bias}, out, rows, columns, depth, left.stride(0), right.stride(0),
    HAS_BIAS={has_bias}, LEFT_TURNED=left_turned, RIGHT_TURNED={turned}right_turned,
    DESCRIBED=is_aligned(left) and is_aligned(right),
    ROW_BLOCK={rows}, COLUMN_BLOCK={columns_block}, STEP_BLOCK=64, GROUP=8, num_warps=8, num_stages=3,
)
return out"""


def write_persistent_product(exported: ExportedModel) -> str:
    """Returns the candidate's text. Raises NotTransformed."""
    steps, product = _find(exported)
    x, weight, bias, outputs_first = operands_of(product)
    tiles = _require_large(
        x, product, [operand for operand in (x, weight, bias) if operand is not None]
    )
    if tiles > MAX_PLAIN_TILES and not outputs_first:
        raise NotTransformed(f"{tiles} tiles of a plain product keep a GPU busy as they are")
    host = HostText(exported.names, {})
    body = HOST.format(
        weight=host.of(weight), x=host.of(x), bias="out" if bias is None else host.of(bias), has_bias=bias is not None,
        columns=f"{host.of(weight)}.shape[{0 if outputs_first else 1}]", turned="not " if outputs_first else "",
        rows=TILE[0], columns_block=TILE[1],
    )  # fmt: skip
    kernel = KERNEL.replace(
        "{chain}", "".join(f"        value = {expression_of_step(step)}\n" for step in steps)
    )
    return candidate_text(exported, HEAD, [kernel, HELPERS], [*host.lines, *body.splitlines()])


def _find(exported: ExportedModel) -> tuple[list[Any], Any]:
    """Returns the nodes that follow the product, in order, and the product. Raises NotTransformed."""
    outputs = next(n for n in exported.graph.nodes if n.op == "output").args[0]
    if len(outputs) != 1:
        raise NotTransformed("more than one tensor is returned")
    node = outputs[0]
    steps: list[Any] = []
    while name_of(node) not in ("linear", "matmul", "mm"):
        if node.op != "call_function" or not node.args or not hasattr(node.args[0], "users"):
            raise NotTransformed("what is returned is no product")
        expression_of_step(node)
        steps.insert(0, node)
        node = node.args[0]
        if len(node.users) != 1:
            raise NotTransformed("the product is used more than once")
    return steps, node


def _require_large(x: GraphNode, product: GraphNode, operands: list[Any]) -> int:
    """Tiles of the result. Raises NotTransformed for a product that is not of half precision, too small, or not
    aligned.
    """
    types = {str(operand.meta["val"].dtype) for operand in operands}
    if len(types) != 1 or not types <= set(HALF_TYPES):
        raise NotTransformed("it is no product of half precision")
    shape = [size_of(extent) for extent in product.meta["val"].shape]
    depth = size_of(x.meta["val"].shape[-1])
    rows, columns = 1, shape[-1]
    for extent in shape[:-1]:
        rows *= extent
    # Rounded up per axis.
    tiles = -(-rows // TILE[0]) * -(-columns // TILE[1])
    if tiles < MIN_TILES or depth < MIN_STEPS:
        raise NotTransformed(
            f"{rows} by {columns} over {depth} steps are too few for persistent programs"
        )
    if columns % ALIGNMENT or depth % ALIGNMENT:
        raise NotTransformed("rows do not begin at whole 16 bytes, as tensor descriptors need")
    return tiles

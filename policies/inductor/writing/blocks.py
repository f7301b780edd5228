"""Block sizes, warps and the grid of a launch, as text of `ModelNew.forward`."""

from __future__ import annotations

import ast
import math
import re

from kernelwright.policies.inductor.writing.kernels import LoweredKernel
from kernelwright.policies.inductor.writing.products.tiles import product_stages, product_tile

SIDES = ("X", "Y", "Z", "R0", "R1")


def block_sizes(kernel: LoweredKernel) -> dict[str, int]:
    """Returns the largest size of each block, bounded by Inductor's hints, which omit masks for
    numeric sizes.
    """
    depth = _persistent_depth(kernel)
    wish = _wished(kernel, depth)
    sizes = {}
    for side in SIDES:
        bound = _power_of_two(kernel.hints.get(side, 1 << 20))
        size = min(wish.get(side, 1), bound)
        sizes[side] = max(16, size) if kernel.dot and side in ("X", "Y", "R0") else size
    return {block: sizes[block.removesuffix("BLOCK").rstrip("_")] for block in kernel.blocks}


def _power_of_two(extent: int) -> int:
    """Returns the smallest power of two at or above an extent."""
    return 1 << max(0, extent - 1).bit_length()


def _persistent_depth(kernel: LoweredKernel) -> int:
    """Elements a persistent reduction holds at once."""
    written = re.findall(r"R0_BLOCK: tl\.constexpr = (\d+)", kernel.text)
    return max([int(v) for v in written] or [kernel.hints.get("R0", 1)])


MANY_LOADS_PER_ELEMENT = 16
"""Threshold of loads per element, reached by windows of convolution and pooling.

Eight elements per thread would then take 150 registers and more, and leave a fifth of a
multiprocessor's threads.
"""


ELEMENTS_OF_ONE_WARP = 1024
"""Maximum elements of rows held by a warp, 32 per thread: its sums need no shared memory and no barrier."""
MIN_ROWS_OF_ONE_WARP = 1024
"""Rows from which on a GPU is full with one warp for each row: Inductor's own rule."""


def _is_of_one_warp(kernel: LoweredKernel, depth: int) -> bool:
    """Whether one warp holds whole rows, as in torch.compile's own reductions of many rows."""
    return (
        kernel.persistent
        and kernel.inner
        and 256 <= depth <= ELEMENTS_OF_ONE_WARP
        and kernel.hints.get("X", 1) >= MIN_ROWS_OF_ONE_WARP
    )


def _wished(kernel: LoweredKernel, depth: int) -> dict[str, int]:
    if kernel.dot:
        tile = product_tile(kernel)
        return {"X": tile.columns, "Y": tile.rows, "R0": tile.depth}
    # A pointwise kernel takes 1,024 elements, fewer if it loads much for each.
    if kernel.kind == "pointwise":
        line = 256 if kernel.text.count("tl.load(") >= MANY_LOADS_PER_ELEMENT else 1024
        if len(kernel.blocks) == 2 and not _side_by_side_in_rows(kernel):
            columns = min(line, kernel.hints.get("X", line))
            return {"X": columns, "Y": line // columns}
        return [{"X": line}, {"X": 32, "Y": 32}, {"X": 16, "Y": 16, "Z": 4}][len(kernel.blocks) - 1]
    # A persistent reduction holds whole rows: several short rows, or one long row.
    if kernel.persistent:
        if _is_of_one_warp(kernel, depth):
            return {"X": ELEMENTS_OF_ONE_WARP // depth}
        return {"X": max(1, 1024 // depth) if depth <= 256 else 1}
    # Reduced elements are adjacent: a block of them is read at once.
    if kernel.inner:
        return {"X": max(1, 2048 // min(2048, kernel.hints.get("R0", 2048))), "R0": 2048}
    # Reduced elements are strided: many rows in parallel read adjacent elements.
    outer = kernel.hints.get("X", 1) >= kernel.hints.get("R0", 1)
    return {"X": 64, "R0": 16} if outer else {"X": 8, "R0": 256}


def _side_by_side_in_rows(kernel: LoweredKernel) -> bool:
    """Returns whether a tensor is contiguous along the second index, as in a transposition.

    Only then does a block need many rows.
    """
    for call in ast.walk(kernel.function):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("tl.load", "tl.store"):
            terms = [ast.unparse(term) for term in _terms(call.args[0])]
            for term in terms:  # `row + 2 * width * row`, of a row of 1 + 2 * width elements, has others with its name
                if (
                    re.fullmatch(r"y\d+|yindex", term)
                    and sum(bool(re.search(rf"\b{term}\b", t)) for t in terms) == 1
                ):
                    return True
    return False


def _terms(address: ast.expr) -> list[ast.expr]:
    """Returns the terms of an address."""
    if isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add):
        return _terms(address.left) + _terms(address.right)
    if isinstance(address, ast.Call) and ast.unparse(address.func) == "tl.broadcast_to":
        return _terms(address.args[0])
    return [address]


def fit_block(kernel: LoweredKernel, block: str, size: int, extent: str) -> str:
    """Returns the block size as an expression: smaller for extents far below it, if the kernel
    masks the rest.

    Sizes go in steps of eight times, because a kernel is compiled once per size; blocks of
    products, whose cost grows with
    the tile, are powers of two.
    """
    side = block.removesuffix("BLOCK").rstrip("_")
    if size <= 16 or extent == "1" or re.fullmatch(r"\d+", extent) or not _masks(kernel, side):
        return str(size)
    return f"{'tile_for' if kernel.dot else 'block_for'}({extent}, {size})"


def _masks(kernel: LoweredKernel, side: str) -> bool:
    """Whether the kernel asks, for this side, which of its elements exist."""
    index = f"{side.lower()}_index" if side.startswith("R") else f"{side.lower()}index"
    numel = f"{side.lower()}_numel" if side.startswith("R") else f"{side.lower()}numel"
    return (
        any(
            isinstance(n, ast.Compare) and ast.unparse(n) == f"{index} < {numel}"
            for n in ast.walk(kernel.function)
        )
        and numel in kernel.parameters
    )


def choose_warps(kernel: LoweredKernel, sizes: dict[str, int]) -> int:
    """Chooses the number of warps of a kernel by its block of `sizes`, in elements."""
    if kernel.dot:
        return product_tile(kernel).warps
    if _is_of_one_warp(kernel, _persistent_depth(kernel)):
        return 1
    return 8 if math.prod(sizes.values()) >= 2048 else 4


def choose_stages(kernel: LoweredKernel) -> int | None:
    """Returns the number of pipeline stages of a product; None for other kernels."""
    if not kernel.dot:
        return None
    return product_stages(kernel)

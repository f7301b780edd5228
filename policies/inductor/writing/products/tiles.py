"""Tiles of products: the part of a result per program, with its warps and pipeline stages."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kernelwright.policies.inductor.writing.kernels import LoweredKernel
from kernelwright.policies.inductor.writing.launch import WrittenLaunch

if TYPE_CHECKING:
    from kernelwright.policies.inductor.tracing.graph import TracedModel


class Tile(NamedTuple):
    """A program's tile of a product."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


FP32_TILES = (Tile(128, 64, 32, 8, 3), Tile(64, 64, 32, 8, 3))
"""Tiles of fp32 products without tensor cores; the first with enough programs for a GPU is used."""
HALF_PRECISION_TILES = (
    Tile(128, 256, 64, 8, 3),
    Tile(128, 128, 64, 8, 3),
    Tile(64, 128, 64, 4, 4),
    Tile(64, 64, 128, 4, 4),
)
"""Tiles of products of fp16 and bf16."""
FEW_ROWS_TILE = Tile(16, 32, 256, 4, 4)
"""Tile of half precision products of at most 16 rows, which read their weights once: 19 us, and 30 us in the last tile
above (16 x 4096 x 4096, H200).
"""
HALF_PRECISION_TILES_OF_TWO = (
    Tile(128, 128, 64, 8, 3),
    Tile(64, 128, 64, 4, 3),
    Tile(64, 64, 128, 4, 4),
)
"""Tiles of two fp16 or bf16 products with a common left operand, such as a layer's gate and values.

The two accumulators take the registers of a single one with twice as many columns.
"""
DESCRIBED_TILES = (Tile(128, 256, 64, 8, 4), Tile(128, 128, 64, 4, 4))
"""Tiles of a product whose operands are read through descriptors."""
RATE_OF_SMALL_TILE = 0.85
"""Elements computed by the second tile per element of the first (H200)."""
DESCRIBED_PAIR_TILE = Tile(128, 128, 64, 8, 4)
"""Tile of two products whose operands are read through descriptors, which take no registers for addresses."""
MIN_DESCRIBED_TILES = 66
"""Tiles of 128 x 128 from which on persistent programs keep half of an H100's multiprocessors at work."""
MULTIPROCESSORS = 132
"""Multiprocessors of an H100 and an H200."""
HALF_PRECISION_TILES_OF_MORE = (Tile(128, 64, 64, 8, 3), Tile(64, 64, 64, 4, 3))
"""Tiles of three or more fp16 or bf16 products with a common left operand, such as query, key and value."""
MAX_SHARED_MEMORY = 227 << 10
"""Shared memory of a block on an H100, in bytes."""
SPLIT_FP32_TILES = (Tile(128, 128, 64, 8, 3), Tile(64, 128, 64, 4, 3), Tile(64, 64, 64, 4, 3))
"""Tiles of products of fp32 in parts of bfloat16: two sums for each element are held in registers, and larger tiles
spill.
"""
FP32_CONVOLUTION_TILE = Tile(128, 64, 32, 8, 2)
"""Tile of convolutions in fp32 without tensor cores, whose patches are gathered: their addresses take registers too."""
TENSOR_CORE_CONVOLUTION_TILE = Tile(128, 128, 32, 8, 3)
"""Tile of convolutions by tensor cores."""
ENOUGH_PROGRAMS = 100
"""Minimum number of programs to occupy a GPU's multiprocessors. Registers, shared memory and spills of the tiles were
looked at by compiling for sm_90: none spills."""


def product_tile(kernel: LoweredKernel) -> Tile:
    """Returns the tile of a product at the problem's own sizes."""
    if kernel.convolves:
        in_fp32 = kernel.single and not kernel.by_tf32
        return FP32_CONVOLUTION_TILE if in_fp32 else TENSOR_CORE_CONVOLUTION_TILE
    if kernel.described:
        return DESCRIBED_PAIR_TILE if len(kernel.described) > 2 else _described_tile(kernel)
    tiles = _tiles(kernel)
    if tiles is HALF_PRECISION_TILES and kernel.hints.get("Y", 1) <= FEW_ROWS_TILE.rows:
        return FEW_ROWS_TILE
    for tile in tiles:
        if _programs(kernel, tile) >= ENOUGH_PROGRAMS:
            return tile
    return tiles[-1]


def _described_tile(kernel: LoweredKernel) -> Tile:
    """Returns the tile with the least estimated time: whole rounds of all multiprocessors, of which the last is often
    nearly empty (8192 x 768 in tiles of 128 x 256 are 1.5 rounds, in tiles of 128 x 128 2.9).
    """
    large, small = DESCRIBED_TILES
    rounds = [math.ceil(_programs(kernel, tile) / MULTIPROCESSORS) for tile in DESCRIBED_TILES]
    return large if rounds[0] * 2 * RATE_OF_SMALL_TILE <= rounds[1] else small


def has_many_tiles(kernel: LoweredKernel, hints: dict[str, int] | None) -> bool:
    """Whether a product with these extents is large enough for persistent programs."""
    sized = kernel if hints is None else replace(kernel, hints=hints)
    return _programs(sized, DESCRIBED_TILES[1]) >= MIN_DESCRIBED_TILES


def _programs(kernel: LoweredKernel, tile: Tile) -> int:
    rows, columns, batch = (kernel.hints.get(side, 1) for side in ("Y", "X", "Z"))
    return batch * math.ceil(rows / tile.rows) * math.ceil(columns / tile.columns)


def _tiles(kernel: LoweredKernel) -> tuple[Tile, ...]:
    """Returns the tiles to choose from, the largest first."""
    if kernel.in_parts:
        return SPLIT_FP32_TILES
    if kernel.single:
        return FP32_TILES
    by_products = (
        HALF_PRECISION_TILES,
        HALF_PRECISION_TILES_OF_TWO,
        HALF_PRECISION_TILES_OF_MORE,
    )
    products = kernel.text.count("tl.dot(")
    return by_products[min(products, len(by_products)) - 1]


def product_stages(kernel: LoweredKernel) -> int:
    """Returns the number of pipeline stages of a product: steps copied to shared memory at once.

    A single stage if an operand is computed from several loads, which would all wait in shared memory.
    """
    *before, _ = kernel.text.split("tl.dot(")
    loads, products = sum(part.count("tl.load(") for part in before), len(before)
    tile = product_tile(kernel)
    if kernel.in_parts:
        return tile.stages
    if loads > 2 * products:
        return 1
    if kernel.single or products == 1:
        return tile.stages
    # All stages have to fit into shared memory; an element of half precision has two bytes.
    bytes_per_stage = 2 * tile.depth * (tile.rows + products * tile.columns)
    return max(1, min(tile.stages, MAX_SHARED_MEMORY // bytes_per_stage))


def note_extents(launch: WrittenLaunch, traced: TracedModel, names: dict[str, str]) -> None:
    """Replaces Inductor's hints of a product's extents, which are powers of two, by the extents at the problem's own
    sizes.

    names: symbol -> name in the launch's arguments.
    """
    values = {}
    for size in traced.sizes.by_path.values():
        symbol, hint = str(size.node.expr), size.node.hint
        if hint is not None and symbol in names:
            values[names[symbol]] = int(hint)
    written = written_extents(launch.kernel.function)
    hints = dict(launch.hints or launch.kernel.hints)
    for side, extent in (("X", "xnumel"), ("Y", "ynumel"), ("Z", "znumel")):
        number = _number(launch.arguments.get(extent, written.get(extent, "")), values)
        if number:
            hints[side] = number
    launch.hints = hints


def written_extents(function: ast.FunctionDef) -> dict[str, str]:
    """Returns a kernel's numeric extents: `xnumel = 768`."""
    extents = {}
    for statement in function.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            extents[ast.unparse(statement.targets[0])] = ast.unparse(statement.value)
    return extents


def _number(text: str, values: dict[str, int]) -> int:
    """Returns the value of an expression of sizes; 0 where it is not known."""
    if not text:
        return 0
    try:
        return int(
            eval(text, {"__builtins__": {}}, values)
        )  # sizes and arithmetic that Inductor wrote
    except Exception:
        return 0

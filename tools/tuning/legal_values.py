"""Which values a parameter may take: what Triton demands, and no further from the start than is worth a compilation."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.tools.tuning.kernel_text.parameters import Role, Setting

MIN_DOT_EXTENT = 16
"""The least value of every extent of `tl.dot` (triton.language.dot)."""
MAX_TILE_EXTENT = 1 << 16
"""The largest value of one extent: larger blocks do not fit the registers."""
TILE_FACTORS = (0.125, 0.25, 0.5, 1, 2, 4, 8)
"""Times the start, of a tile outside products."""
WARPS: tuple[int, ...] = (1, 2, 4, 8, 16)
STAGES: tuple[int, ...] = (1, 2, 3, 4, 5)
CTAS: tuple[int, ...] = (1, 2)
COUNTS: tuple[int, ...] = (1, 2, 4, 8, 16)
PRECISIONS: tuple[str, ...] = ("ieee", "tf32x3", "bf16x6", "bf16x3", "tf32")
DEFAULTS: dict[Role, Setting] = {Role.WARPS: 4, Role.STAGES: 3, Role.CTAS: 1, Role.PRECISION: "tf32"}
"""What Triton takes where a launch says nothing (backends/nvidia/compiler.py, CUDAOptions)."""
WORK_COUNT_WORDS = ("GROUP", "SPLIT", "UNROLL", "STAGES", "PROGRAMS")
"""Parts of the names of constexprs that count work and do not describe it, upper case."""


def tile_values(start: int, in_product: bool, unmasked: bool) -> tuple[int, ...]:
    """Powers of two round the start.

    unmasked: the kernel relies on its blocks to divide the extents, so no block may be larger than its own.
    """
    least = MIN_DOT_EXTENT if in_product else 1
    near = DOT_PRODUCT if in_product else tuple(int(start * factor) for factor in TILE_FACTORS)
    found = {v for v in near if v >= least and _power(v) and v <= MAX_TILE_EXTENT}
    if unmasked:
        found = {v for v in found if v <= start}
    return tuple(sorted(found | {start}))


DOT_PRODUCT = tuple(1 << n for n in range(4, 9))
"""16 to 256."""


def option_values(role: Role, start: int) -> tuple[int, ...]:
    """The legal values of warps, stages and CTAs of a launch."""
    known: Sequence[int] = {Role.WARPS: WARPS, Role.STAGES: STAGES, Role.CTAS: CTAS}.get(role, COUNTS)
    return tuple(sorted({*known, start}))


def counts_work(name: str) -> bool:
    """Whether a constexpr that is no extent says how work is divided, by its name; a KERNEL or a STRIDE does not."""
    return any(part in name.upper() for part in WORK_COUNT_WORDS)


def _power(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0

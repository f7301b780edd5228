"""Legal values of each parameter: values accepted by Triton, near enough to the start to be worth
a compilation.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.tools.tuning.kernel_text.parameters import ParameterRole, Setting

MIN_DOT_EXTENT = 16
"""The least value of every extent of `tl.dot` (triton.language.dot)."""
MAX_TILE_EXTENT = 1 << 16
"""Largest value of an extent: larger blocks exceed the registers."""
TILE_FACTORS = (0.125, 0.25, 0.5, 1, 2, 4, 8)
"""Times the start, of a tile outside products."""
WARP_COUNTS: tuple[int, ...] = (1, 2, 4, 8, 16)
STAGE_COUNTS: tuple[int, ...] = (1, 2, 3, 4, 5)
CTA_COUNTS: tuple[int, ...] = (1, 2)
WORK_COUNTS: tuple[int, ...] = (1, 2, 4, 8, 16)
DOT_PRECISIONS: tuple[str, ...] = ("ieee", "tf32x3", "bf16x6", "bf16x3", "tf32")
TRITON_DEFAULTS: dict[ParameterRole, Setting] = {
    ParameterRole.WARPS: 4,
    ParameterRole.STAGES: 3,
    ParameterRole.CTAS: 1,
    ParameterRole.PRECISION: "tf32",
}
"""Triton's defaults for missing options of a launch (backends/nvidia/compiler.py, CUDAOptions)."""
WORK_COUNT_WORDS = ("GROUP", "SPLIT", "UNROLL", "STAGES", "PROGRAMS")
"""Parts (upper case) of the names of constexprs which count work."""


def tile_values(start: int, in_product: bool, unmasked: bool) -> tuple[int, ...]:
    """Powers of two round the start.

    unmasked: the kernel relies on its blocks to divide the extents, so no block may be larger
    than its own.
    """
    least = MIN_DOT_EXTENT if in_product else 1
    near = DOT_EXTENTS if in_product else tuple(int(start * factor) for factor in TILE_FACTORS)
    values = {v for v in near if v >= least and _power(v) and v <= MAX_TILE_EXTENT}
    if unmasked:
        values = {v for v in values if v <= start}
    return tuple(sorted(values | {start}))


DOT_EXTENTS = tuple(1 << n for n in range(4, 9))
"""The legal extents of a tile of a product, 16 to 256."""


def option_values(role: ParameterRole, start: int) -> tuple[int, ...]:
    """The legal values of warps, stages and CTAs of a launch."""
    counts: Sequence[int] = {
        ParameterRole.WARPS: WARP_COUNTS,
        ParameterRole.STAGES: STAGE_COUNTS,
        ParameterRole.CTAS: CTA_COUNTS,
    }.get(role, WORK_COUNTS)
    return tuple(sorted({*counts, start}))


def counts_work(name: str) -> bool:
    """Returns whether the name of a constexpr suggests a division of work; a KERNEL or a STRIDE
    does not.
    """
    return any(part in name.upper() for part in WORK_COUNT_WORDS)


def _power(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0

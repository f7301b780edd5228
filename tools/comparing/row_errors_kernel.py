"""tools/comparing/row_errors.py in one pass over the GPU's memory: a Triton kernel of the judge's own, in the
trusted process. Imported only where a survey is made on a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

TILE, WARPS = 1024, 8
MAX_PROGRAMS = 8192
"""Long rows are cut into pieces until there are about so many; each piece leaves its own numbers, so that nothing
depends on who comes first.
"""
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@triton.jit
def _finite(x):
    """|x|; 0 for NaN and infinity."""
    size = tl.abs(x)
    return tl.where(size < float("inf"), size, 0.0)


@triton.jit
def _is_beyond_tolerance(c, e, TOLERANCE: tl.constexpr):
    """1 where torch.isclose(e, c, atol=TOLERANCE, rtol=TOLERANCE) is not: each step rounded to the outputs' own
    dtype.
    """
    own = c.dtype
    wide = tl.float32 if own.primitive_bitwidth < 32 else own
    slack = tl.abs((c.to(wide) * TOLERANCE).to(own)).to(wide)
    allowed = (slack + TOLERANCE).to(own).to(wide)
    gap = tl.abs((e.to(wide) - c.to(wide)).to(own).to(wide))
    return tl.where((e.to(wide) == c.to(wide)) | ((gap < float("inf")) & (gap <= allowed)), 0, 1)


@triton.jit
def _error(c, e, r, MOST: tl.constexpr):
    """|c - r| in float64; 0 where they are the same, or where it is not finite and c is what e is, or the infinity of
    an r beyond MOST, the largest number of c's type; else infinite where it is not finite.
    """
    gap = tl.abs(c - r)
    finite = gap < float("inf")
    same = (c == r) | ((c != c) & (r != r))
    eagers = (c == e) | ((c != c) & (e != e))
    infinite = ((r > MOST) & (c == float("inf"))) | ((r < -MOST) & (c == float("-inf")))
    return tl.where(finite, gap, tl.where(same | eagers | infinite, 0.0, float("inf")))


@triton.jit
def survey_kernel(
    c_ptr, e_ptr, r_ptr, s_ptr, found_ptr, far_ptr, rows, columns, width,
    TOLERANCE: tl.constexpr, MOST: tl.constexpr, PERTURBED: tl.constexpr, DOWN: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    """found: (7, rows, pieces), max |r|, |e - r|, |c - r|, the sums of their squares, and the number of elements
    whose e is finite or whose r is not.

    far: (rows, pieces). A program has DOWN rows of one piece.
    """
    row = tl.program_id(0).to(tl.int64) * DOWN + tl.arange(0, DOWN)
    piece = tl.program_id(1).to(tl.int64)
    end = tl.minimum((piece + 1) * width, columns)
    scale = tl.zeros((DOWN, ACROSS), dtype=tl.float64)
    noise, error, scale2, noise2, error2, known = scale, scale, scale, scale, scale, scale
    far = tl.zeros((DOWN, ACROSS), dtype=tl.int32)
    for start in range(piece * width, end, ACROSS):
        column = start + tl.arange(0, ACROSS)
        mask = (row[:, None] < rows) & (column[None, :] < end)
        at = row[:, None] * columns + column[None, :]
        mine = tl.load(c_ptr + at, mask=mask, other=0.0)
        eager = tl.load(e_ptr + at, mask=mask, other=0.0)
        c, e = mine.to(tl.float64), eager.to(tl.float64)
        r = tl.load(r_ptr + at, mask=mask, other=0.0).to(tl.float64)
        size, gap, wrong = _finite(r), _finite(r - e), _error(c, e, r, MOST)
        if PERTURBED:
            gap = tl.maximum(
                gap, _finite(r - tl.load(s_ptr + at, mask=mask, other=0.0).to(tl.float64))
            )
        scale, scale2 = tl.maximum(scale, size), scale2 + size * size
        noise, noise2 = tl.maximum(noise, gap), noise2 + gap * gap
        error, error2 = tl.maximum(error, wrong), error2 + wrong * wrong
        tells = mask & ((tl.abs(e) < float("inf")) | ~(tl.abs(r) < float("inf")))
        known += tl.where(tells, 1.0, 0.0)
        far = far | _is_beyond_tolerance(mine, eager, TOLERANCE)
    pieces = tl.num_programs(1).to(tl.int64)
    place, kept, step = found_ptr + row * pieces + piece, row < rows, pieces * rows
    tl.store(place, tl.max(scale, axis=1), mask=kept)
    tl.store(place + step, tl.max(noise, axis=1), mask=kept)
    tl.store(place + 2 * step, tl.max(error, axis=1), mask=kept)
    tl.store(place + 3 * step, tl.sum(scale2, axis=1), mask=kept)
    tl.store(place + 4 * step, tl.sum(noise2, axis=1), mask=kept)
    tl.store(place + 5 * step, tl.sum(error2, axis=1), mask=kept)
    tl.store(place + 6 * step, tl.sum(known, axis=1), mask=kept)
    tl.store(far_ptr + row * pieces + piece, tl.max(far, axis=1), mask=kept)


def can_read(c: Any, e: Any, r: Any, s: Any) -> bool:
    """Whether the kernel reads such tensors: floating ones without gaps, the candidate's and eager's of one dtype."""
    tensors = [c, e, r] + ([] if s is None else [s])
    return c.dtype == e.dtype and all(t.dtype in DTYPES and t.is_contiguous() for t in tensors)


def measure_rows(
    c: Any, e: Any, r: Any, s: Any, tolerance: float, programs: int = MAX_PROGRAMS
) -> tuple[Any, Any, Any, Any]:
    """(3, rows): max |r|, |e - r| and |c - r|; (3,): the sums of their squares over everything; (rows,): elements
    whose noise eager tells; whether any element is not `torch.isclose`. All float64.
    """
    rows, columns = c.shape
    across = max(16, min(TILE, triton.next_power_of_2(columns)))
    down = TILE // across
    groups = triton.cdiv(rows, down)
    pieces = max(1, min(triton.cdiv(columns, across), programs // groups))
    width = triton.cdiv(triton.cdiv(columns, pieces), across) * across
    pieces = triton.cdiv(columns, width)
    found = torch.empty(7, rows, pieces, dtype=torch.float64, device=c.device)
    far = torch.empty(rows, pieces, dtype=torch.int32, device=c.device)
    with torch.cuda.device_of(c):
        survey_kernel[(groups, pieces)](
            c, e, r, r if s is None else s, found, far, rows, columns, width,
            TOLERANCE=tolerance, MOST=torch.finfo(c.dtype).max, PERTURBED=s is not None, DOWN=down, ACROSS=across,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )  # fmt: skip
    return found[:3].amax(2), found[3:6].sum((1, 2)), found[6].sum(1), far.any()

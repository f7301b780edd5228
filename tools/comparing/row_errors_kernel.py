"""Triton kernel of tools/comparing/row_errors.py, in a single pass over the GPU's memory, in the
trusted process.

Imported only if errors are computed on a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

ERROR_TILE = 1024
WARPS = 8
MAX_PROGRAMS = 8192
"""Approximate maximum number of programs, up to which long rows are split; each piece writes its
own results, so that no order of programs matters."""
ROW_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@triton.jit
def _finite(x):
    """Returns |x|; 0 for NaN and infinity."""
    size = tl.abs(x)
    return tl.where(size < float("inf"), size, 0.0)


@triton.jit
def _is_beyond_tolerance(c, e, TOLERANCE: tl.constexpr):
    """Returns 1 if torch.isclose(e, c, atol=TOLERANCE, rtol=TOLERANCE) is False, with each step
    rounded to the outputs' dtype."""
    dtype = c.dtype
    wide = tl.float32 if dtype.primitive_bitwidth < 32 else dtype
    slack = tl.abs((c.to(wide) * TOLERANCE).to(dtype)).to(wide)
    allowed = (slack + TOLERANCE).to(dtype).to(wide)
    gap = tl.abs((e.to(wide) - c.to(wide)).to(dtype).to(wide))
    return tl.where((e.to(wide) == c.to(wide)) | ((gap < float("inf")) & (gap <= allowed)), 0, 1)


@triton.jit
def _error(c, e, r, MOST: tl.constexpr):
    """Returns |c - r| in float64; 0 if equal; otherwise infinite if not finite.

    Also 0 if not finite while c equals e, or is the infinity of an r beyond MOST, the largest
    number of c's type.
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
    """Computes found, (7, rows, pieces): max |r|, |e - r|, |c - r|, the sums of their squares, and
    the number of elements whose e is finite or whose r is not.

    far: (rows, pieces). A program handles DOWN rows of a piece.
    """
    row = tl.program_id(0).to(tl.int64) * DOWN + tl.arange(0, DOWN)
    piece = tl.program_id(1).to(tl.int64)
    end = tl.minimum((piece + 1) * width, columns)
    scale = tl.zeros((DOWN, ACROSS), dtype=tl.float64)
    noise = scale
    error = scale
    scale2 = scale
    noise2 = scale
    error2 = scale
    informative = scale
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
        informative += tl.where(tells, 1.0, 0.0)
        far = far | _is_beyond_tolerance(mine, eager, TOLERANCE)
    pieces = tl.num_programs(1).to(tl.int64)
    first_result, row_mask, step = found_ptr + row * pieces + piece, row < rows, pieces * rows
    tl.store(first_result, tl.max(scale, axis=1), mask=row_mask)
    tl.store(first_result + step, tl.max(noise, axis=1), mask=row_mask)
    tl.store(first_result + 2 * step, tl.max(error, axis=1), mask=row_mask)
    tl.store(first_result + 3 * step, tl.sum(scale2, axis=1), mask=row_mask)
    tl.store(first_result + 4 * step, tl.sum(noise2, axis=1), mask=row_mask)
    tl.store(first_result + 5 * step, tl.sum(error2, axis=1), mask=row_mask)
    tl.store(first_result + 6 * step, tl.sum(informative, axis=1), mask=row_mask)
    tl.store(far_ptr + row * pieces + piece, tl.max(far, axis=1), mask=row_mask)


def can_read(c: torch.Tensor, e: torch.Tensor, r: torch.Tensor, s: torch.Tensor | None) -> bool:
    """Returns True for tensors that the kernel can read: floating, without gaps, candidate and
    eager of equal dtype."""
    tensors = [c, e, r] + ([] if s is None else [s])
    return c.dtype == e.dtype and all(t.dtype in ROW_DTYPES and t.is_contiguous() for t in tensors)


def measure_rows(
    c: torch.Tensor,
    e: torch.Tensor,
    r: torch.Tensor,
    s: torch.Tensor | None,
    tolerance: float,
    programs: int = MAX_PROGRAMS,
) -> tuple[Any, Any, Any, Any]:
    """Returns errors, all in float64.

    (3, rows): max |r|, |e - r| and |c - r|; (3,): the sums of their squares over everything;
    (rows,): number of elements whose noise eager shows; whether any element is not `torch.isclose`.
    """
    rows, columns = c.shape
    across = max(16, min(ERROR_TILE, triton.next_power_of_2(columns)))
    down = ERROR_TILE // across
    groups = triton.cdiv(rows, down)
    pieces = max(1, min(triton.cdiv(columns, across), programs // groups))
    width = triton.cdiv(triton.cdiv(columns, pieces), across) * across
    pieces = triton.cdiv(columns, width)
    results = torch.empty(7, rows, pieces, dtype=torch.float64, device=c.device)
    far = torch.empty(rows, pieces, dtype=torch.int32, device=c.device)
    with torch.cuda.device_of(c):
        survey_kernel[(groups, pieces)](
            c, e, r, r if s is None else s, results, far, rows, columns, width,
            TOLERANCE=tolerance, MOST=torch.finfo(c.dtype).max, PERTURBED=s is not None, DOWN=down, ACROSS=across,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )  # fmt: skip
    return results[:3].amax(2), results[3:6].sum((1, 2)), results[6].sum(1), far.any()

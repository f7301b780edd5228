"""The judge's Triton kernel against torch, case by case: `python tests/tools/comparing/row_error_cases.py cpu`
under TRITON_INTERPRET=1, or on cuda:0. Fails with an AssertionError.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import torch

from kernelwright.tools.comparing.comparison import is_all_close
from kernelwright.tools.comparing.row_errors import row_errors_by_torch
from kernelwright.tools.comparing.row_errors_kernel import MAX_PROGRAMS, can_read, measure_rows

SHAPES = ((1, 1), (1, 2100), (37, 33))
LARGE = (
    (67, 33),
    (130, 32),
    (5, 16384),
    (1, 40_000_001),
    (3, 5_000_000),
    (1_000_003, 33),
    (4096, 4096),
)
ODD = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40)


def cases(device: str) -> Iterator[tuple[str, Any, Any, Any, Any]]:
    """A name, candidate, eager, reference and what it moves to (or None)."""
    torch.manual_seed(0)
    for shape in SHAPES if device == "cpu" else SHAPES + LARGE:
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            r = torch.randn(shape, dtype=torch.float64, device=device)
            e = r.to(dtype)
            c = (e.double() * (1 + 1e-3 * torch.randn_like(r))).to(dtype)
            yield f"near {shape} {dtype}", c, e, r, None
            yield f"eager stands in {shape} {dtype}", c, e, e, e * (1 + torch.finfo(dtype).eps)
            few = [_sprinkled(t) for t in (c, e, r)]
            yield f"odd values {shape} {dtype}", *few, _sprinkled(r * (1 + 1e-7))
            row = torch.randn(shape[0], 1, dtype=dtype, device=device).expand(shape).contiguous()
            yield f"constant rows {shape} {dtype}", row, row.clone(), row.double() + 1e-9, None
            yield (
                f"zeros {shape} {dtype}",
                torch.zeros_like(e),
                torch.zeros_like(e),
                torch.zeros_like(r),
                None,
            )
            yield f"eager's own, r elsewhere {shape} {dtype}", few[1], few[1].clone(), r, None
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for number in range(8):
            e = torch.randn(1, 1, dtype=dtype, device=device)
            c = (e.double() - e.double().sign() * tolerance_of(dtype)) / (1 + tolerance_of(dtype))
            yield f"on the edge of KernelBench's rule {dtype} {number}", c.to(dtype), e, e, None


def tolerance_of(dtype: Any) -> float:
    return 1e-2 if dtype.itemsize == 2 else 1e-4


def _sprinkled(t: Any) -> Any:
    """Every value of ODD in one element in twelve, each tensor in places of its own and some of them in the same."""
    which = torch.randint(0, 12, t.shape, device=t.device)
    out = t.clone()
    for number, value in enumerate(ODD):
        out[which == number] = value
    return out


def agree(name: str, c: Any, e: Any, r: Any, s: Any) -> None:
    assert can_read(c, e, r, s), name
    tolerance, want = tolerance_of(c.dtype), row_errors_by_torch(c, e, r, s, tolerance_of(c.dtype))
    near = want.near_the_host()
    assert all(
        torch.equal(getattr(near, n).cpu(), getattr(want, n).cpu())
        for n in ("scale", "noise", "error", "squares", "informative")
    )
    assert bool(near.far) == bool(want.far), name
    for programs in (2, MAX_PROGRAMS):
        most, squares, known, far = measure_rows(c, e, r, s, tolerance, programs)
        assert torch.equal(most, torch.stack([want.scale, want.noise, want.error])), name
        assert torch.equal(known, want.informative), name
        assert torch.allclose(squares, want.squares, rtol=1e-12, atol=0), (
            name,
            squares,
            want.squares,
        )
        assert bool(far) == bool(want.far) != is_all_close(c, e, tolerance), name


def main(device: str) -> int:
    """How many cases agree."""
    return sum(agree(*case) is None for case in cases(device))


if __name__ == "__main__":
    print(main(sys.argv[1]))

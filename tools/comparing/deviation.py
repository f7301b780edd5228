"""How far a candidate and eager lie from the float64 reference: the numbers that tools/comparing/comparison.py
judges by. In pieces, and one wait for the GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.tools.comparing.row_errors import row_errors
from kernelwright.tools.comparing.tolerance import Allowance, Tensor, Tolerance, tiles

JUMP_FACTOR = 8
"""Rows in which a rounding, a comparison or an index may fall on the other side, for each row in which eager's does."""


@dataclass
class Deviation:
    """How far a candidate's output is from the reference, and how far it may be."""

    headroom: float
    max_error: float
    eager_error: float
    ratio: float
    tolerance: Tolerance
    allowed: Tensor | None = None
    """A row, perhaps in the host's memory; None for whole numbers, which are compared exactly."""
    close: bool | None = None
    """KernelBench's own rule; None for whole numbers."""


def deviation_of_floats(
    c: Tensor,
    e: Tensor,
    r: Tensor,
    s: Tensor | None,
    allow: Allowance,
    carried: Tolerance | None,
    stands_in: bool,
    kb_tolerance: float,
) -> Deviation:
    """Compares an output `c` with eager `e` and the exact reference `r`, all of one floating shape, by rows."""
    import torch

    seen = row_errors(c, e, r, s, kb_tolerance).near_the_host()
    rms_r, rms_e, rms_c = (seen.squares / c.numel()).sqrt()
    scale = seen.scale.clamp(min=(allow.floor * rms_r).clamp(min=allow.least))
    relative = torch.where(scale > 0, seen.noise / scale, 0.0)
    own = Tolerance(row=float(_percentile_99(relative)), rms=float(torch.where(rms_r > 0, rms_e / rms_r, 0.0)))
    used = own.joined(carried)
    factor = allow.factor + (1.0 if stands_in else 0.0)
    allowed = factor * torch.maximum(seen.noise, used.row * scale) + allow.ulps * scale
    allowed_rms = factor * torch.maximum(rms_e, used.rms * rms_r) + allow.rms_ulps * rms_r.clamp(min=allow.least)
    row_headroom = _row_headroom(seen.error, allowed, relative, scale, allow)
    numbers = torch.stack(
        [
            row_headroom,
            _ratio_to_limit(rms_c, allowed_rms),
            seen.error.max(),
            seen.noise.max(),
            _ratio_to_limit(rms_c, rms_e),
        ]
    ).tolist()
    rows, rms, max_error, eager_error, ratio = numbers
    if not math.isfinite(max_error):
        rms = math.inf
    return Deviation(
        max(rows, rms), max_error, eager_error, ratio, used if stands_in else own, allowed, not bool(seen.far)
    )


def _row_headroom(error: Tensor, allowed: Tensor, relative: Tensor, scale: Tensor, allow: Allowance) -> Tensor:
    """Worst error over allowed error, after the rows in which the problem itself jumps.

    A rounding to an integer, a comparison or an index turns an error of one ulp into a step, at rare places and not the
    same ones for every honest kernel. Where eager has such rows (error over 8 times the median row's), as many times 8
    rows of the candidate may step as far.
    """
    import torch

    over = _ratio_to_limit(error, allowed)
    jumps = (relative > 8 * relative.median() + allow.ulps).sum()
    stepped = (over > 1) & (error <= 2 * relative.max() * scale)
    excused = (jumps > 0) & (stepped.sum() <= JUMP_FACTOR * jumps)
    return torch.where(stepped & excused, 1.0, over).max()


def _ratio_to_limit(value: Tensor, limit: Tensor) -> Tensor:
    """value / limit; 0 where both are 0, infinite where only the limit is."""
    import torch

    return torch.where(value == 0, 0.0, value / limit).nan_to_num(nan=math.inf, posinf=math.inf)


def _percentile_99(relative: Tensor) -> Tensor:
    """The 99th percentile over at most 65,536 evenly spaced rows; the largest of fewer than a hundred."""
    sample = relative[:: max(1, relative.numel() // 65536)]
    return sample.kthvalue(max(1, math.ceil(0.99 * sample.numel()))).values


def deviation_of_integers(c: Tensor, e: Tensor, r: Tensor, s: Tensor | None) -> Deviation:
    """Exactly equal to eager's or to float64's; or, where those two differ themselves, at as many places times 8
    and no farther than `_allowed_jump`.
    """
    honest = [e] if s is None else [e, s]
    wrong, farthest = _differences(c, r)
    strict, _ = _differences(c, e)
    jumps = max(_differences(h, r) for h in honest)
    near = wrong <= JUMP_FACTOR * jumps[0] and farthest <= _allowed_jump(jumps[1], r) and jumps[0] > 0
    right = strict == 0 or wrong == 0 or near
    ratio = 1.0 if wrong == jumps[0] else (wrong / jumps[0] if jumps[0] else math.inf)
    return Deviation(0.0 if right else math.inf, farthest, jumps[1], ratio, Tolerance())


def _allowed_jump(jump: float, r: Tensor) -> float:
    """How far a whole number may be off where eager's are, by `jump` at most.

    A value that was rounded: twice as far. An index among equals (an argmin of what saturates) is off by chance: where
    eager's are, by an eighth of the range and more, any place in the range is as near as another.
    """
    if jump <= 1:
        return 1
    low, high = (float(v) for v in r.aminmax())
    return max(jump, high - low) if jump >= (high - low) / 8 else 2 * jump


def _differences(a: Tensor, b: Tensor) -> tuple[int, float]:
    """How many elements differ, and by how much at most."""
    import torch

    count, farthest = (torch.zeros((), dtype=t, device=a.device) for t in (torch.int64, torch.float64))
    rows, columns = a.shape
    for down, across in tiles(rows, columns, a.device.type):
        x, y = a[down, across], b[down, across]
        count += (x != y).sum()
        farthest = torch.maximum(farthest, (x.double() - y.double()).abs_().amax())
    return int(count), float(farthest)

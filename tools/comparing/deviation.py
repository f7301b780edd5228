"""Computes the deviations of candidate and eager from the float64 reference, on which
tools/comparing/comparison.py decides.

Works in pieces, with a single synchronisation of the GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelwright.tools.comparing.exactness.steps import (
    StepReach,
    are_one_sided,
    base_tolerance,
    unexplained_elements,
)
from kernelwright.tools.comparing.row_errors import error_of, row_errors
from kernelwright.tools.numerics.tolerance import Allowance, Tensor, Tolerance, distance, tiles


@dataclass
class Deviation:
    """Deviation of a candidate's output from the reference, and its limits."""

    headroom: float
    max_error: float
    eager_error: float
    ratio: float
    tolerance: Tolerance
    allowed: Tensor | None = None
    """Allowed error per row, possibly in host memory; None if `wrong` marks wrong elements."""
    wrong: Tensor | None = None
    """A boolean for each element of the matrix of rows."""
    close: bool | None = None
    """Result of KernelBench's rule; None if not computed."""


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
    """Compares an output `c` with eager `e` and the exact reference `r`, all of equal floating
    shape, by rows.

    If eager overflowed at elements with a finite reference, the noise of the other elements is
    used; if it overflowed everywhere, `carried`, from another draw. stands_in: `r` is eager's
    output.
    """
    import torch

    errors = row_errors(c, e, r, s, kb_tolerance).near_the_host()
    informative_elements = float(errors.informative.sum())
    rms_r, rms_e, rms_c = (errors.squares / c.numel()).sqrt()
    rms_e = rms_e * math.sqrt(c.numel() / max(informative_elements, 1.0))
    scale = errors.scale.clamp(min=(allow.floor * rms_r).clamp(min=allow.least))
    relative = torch.where(scale > 0, errors.noise / scale, 0.0)
    if 0 < informative_elements < c.numel():
        relative = relative[errors.informative > 0]
    own_tolerance = Tolerance(
        row=float(_percentile_99(relative)), rms=float(torch.where(rms_r > 0, rms_e / rms_r, 0.0))
    )
    stands_in = stands_in or not informative_elements
    used = own_tolerance.joined(carried if stands_in else None)
    factor = allow.factor + (1.0 if stands_in else 0.0)
    allowed = factor * torch.maximum(errors.noise, used.row * scale) + allow.ulps * scale
    allowed_rms = factor * torch.maximum(rms_e, used.rms * rms_r) + allow.rms_ulps * rms_r.clamp(
        min=allow.least
    )
    numbers = torch.stack(
        [
            _ratio_to_limit(errors.error, allowed).max(),
            _ratio_to_limit(rms_c, allowed_rms),
            errors.error.max(),
            errors.noise.max(),
            _ratio_to_limit(rms_c, rms_e),
        ]
    ).tolist()
    rows, rms, max_error, eager_error, ratio = numbers
    if not math.isfinite(max_error):
        rms = math.inf
    return Deviation(
        max(rows, rms),
        max_error,
        eager_error,
        ratio,
        used if stands_in else own_tolerance,
        allowed,
        close=not bool(errors.far),
    )


def _ratio_to_limit(value: Tensor, limit: Tensor) -> Tensor:
    """Returns value / limit; 0 if both are 0, infinite if only the limit is."""
    import torch

    return torch.where(value == 0, 0.0, value / limit).nan_to_num(nan=math.inf, posinf=math.inf)


def _percentile_99(relative: Tensor) -> Tensor:
    """Returns the 99th percentile over at most 65,536 evenly spaced rows; the maximum of fewer than
    a hundred."""
    sample = relative[:: max(1, relative.numel() // 65536)]
    return sample.kthvalue(max(1, math.ceil(0.99 * sample.numel()))).values


def deviation_of_elements(
    c: Tensor, e: Tensor, r: Tensor, steps: StepReach | None, allow: Allowance, eps: float
) -> Deviation:
    """Compares an output by element, in matrices of rows: an exact one with eager's or the
    reference's values, or a stepped one.

    Stepped outputs: tools/comparing/exactness/steps.py. allow: for floating stepped outputs; an
    exact output has no allowance. eps: that of the coarsest input.
    """
    import torch

    base = base_tolerance(r, allow)
    not_eager, not_exact = (
        torch.empty(c.shape, dtype=torch.bool, device=c.device) for _ in range(2)
    )
    numbers = torch.zeros(4, dtype=torch.float64, device=c.device)
    rows, columns = c.shape
    for down, across in tiles(rows, columns, c.device.type):
        mine = c[down, across]
        eager = e[down, across]
        exact = r[down, across]
        error = error_of(mine, eager, exact)
        noise = distance(eager, exact)
        if r.is_floating_point():
            not_eager[down, across] = distance(mine, eager) > base[down]
            not_exact[down, across] = error > base[down]
        else:  # float64 has not every number of 64 bits
            not_eager[down, across], not_exact[down, across] = mine != eager, mine != exact
        largest = torch.maximum(numbers[:2], torch.stack([error.max(), noise.max()]))
        squares = torch.stack(
            [part.square().nan_to_num_(posinf=0.0).sum() for part in (error, noise)]
        )
        numbers = torch.cat([largest, numbers[2:] + squares])
    wrong = not_eager & not_exact
    if steps is not None and bool(wrong.any()):
        wrong = unexplained_elements(c, r, wrong, steps, base, allow)
    if are_one_sided(c, e, r, not_eager, eps):
        wrong = not_eager
    max_error, eager_error, squares_c, squares_e = numbers.tolist()
    ratio = (
        1.0
        if squares_c == squares_e
        else math.sqrt(squares_c / squares_e)
        if squares_e
        else math.inf
    )
    headroom = math.inf if bool(wrong.any()) else 0.0
    return Deviation(headroom, max_error, eager_error, ratio, Tolerance(), wrong=wrong)

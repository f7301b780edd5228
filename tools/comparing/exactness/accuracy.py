"""Checks errors that a row's tolerance cannot show: rounding of small elements, and the direction
of rounding.

An element a millionth of its row's largest may have any value by the row's tolerance. So the
relative errors of a sample are counted: half of them, 1 % and 0.1 % may each exceed a limit. Near a
zero of a function every honest relative error is large, but rarely: of evenly spread values a share
`p` is so near to zero that an error of an ulp of the typical value is `1 / p` of their ulps. So the
limits grow with the quantile. If eager itself, or the reference on perturbed inputs, is worse, that
is the limit, times the factor of tools/numerics/tolerance.py.

16-bit numbers are rounded to nearest: their mean signed error is 0. Truncation is biased by half an
ulp towards zero, which is within every tolerance.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernelwright.tools.numerics.pieces import sample_elements
from kernelwright.tools.numerics.tolerance import Allowance

if TYPE_CHECKING:
    import torch

MAX_SAMPLED_ELEMENTS = 1 << 16
QUANTILES = {0.5: 4.0, 0.99: 200.0, 0.999: 2000.0}
"""Quantiles of the relative error, each with its limit in allowances of an element of a row's largest size."""
EXTRA_ELEMENTS, EXTRA_DEVIATIONS = 2, 3.0
"""Elements over a limit beyond its share: a few, and standard deviations of their number."""
MAX_MEAN_SIGNED_ERROR = 1 / 8
"""Units in the last place: rounding has 0, cutting off 1/2."""
MIN_ELEMENTS_FOR_MEAN = 512
MEAN_DEVIATIONS = 4.0
MAX_BYTES_ROUNDED = 2
"""Maximum size, in bytes, of types with checked signed errors: fp32 is seldom the last rounding of
a wider type."""


def inaccuracy(
    c: torch.Tensor,
    e: torch.Tensor,
    r: torch.Tensor,
    s: torch.Tensor | None,
    allow: Allowance,
    dtype: torch.dtype,
) -> tuple[str, torch.Tensor | None]:
    """Returns a hint and a boolean for each element with a wrong relative or signed error; "" and
    None without any.

    c, e, r: candidate, eager and float64 reference, of equal shape. s: the reference on perturbed
    inputs. dtype: the output's.
    """
    mine, eager, exact = (_sample(t) for t in (c, e, r))
    moved = None if s is None else _sample(s)
    if limit := _exceeded_limit(mine, eager, exact, moved, allow, dtype):
        return (
            f"Small values are wrong relative to their own size: errors of over {limit:.1e} of the value are too many "
            "(a cut-off of what is small, or lower precision).",
            _relative_errors(c, r, dtype) > limit,
        )
    if dtype.itemsize <= MAX_BYTES_ROUNDED and (
        mean := _mean_signed_error(mine, eager, exact, dtype)
    ):
        name = str(dtype).removeprefix("torch.")
        return (
            f"The mean signed error is {mean:+.2f} units in the last place of {name}, where rounding to nearest has 0: "
            "numbers are cut off rather than rounded.",
            c.double() != r.double().to(dtype).double(),
        )
    return "", None


def _sample(values: torch.Tensor) -> torch.Tensor:
    return sample_elements(values, MAX_SAMPLED_ELEMENTS).double()


def _relative_errors(values: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns |values - exact| / |exact|; 0 if the exact value is no normal number of the type."""
    import torch

    wide = exact.double()
    size = wide.abs()
    is_normal = (size >= torch.finfo(dtype).smallest_normal) & (size <= torch.finfo(dtype).max)
    errors = (values.double() - wide).abs() / size
    return torch.where(is_normal, errors, 0.0).nan_to_num_(nan=0.0, posinf=math.inf)


def _exceeded_limit(
    mine: torch.Tensor,
    eager: torch.Tensor,
    exact: torch.Tensor,
    moved: torch.Tensor | None,
    allow: Allowance,
    dtype: torch.dtype,
) -> float:
    """Returns the limit of relative errors that too many of a sample exceed; 0 if none is exceeded."""
    errors = _relative_errors(mine, exact, dtype)
    count = errors.numel()
    for quantile, allowances in QUANTILES.items():
        limit = allowances * allow.ulps
        expected = (1 - quantile) * count
        most = expected + EXTRA_DEVIATIONS * math.sqrt(expected) + EXTRA_ELEMENTS
        if int((errors > limit).sum()) <= most:
            continue
        rank = max(1, math.ceil(quantile * count))
        for source in (eager, moved):
            if source is not None:
                noise = _relative_errors(source, exact, dtype).kthvalue(rank).values
                limit = max(limit, allow.factor * float(noise))
        if int((errors > limit).sum()) > most:
            return limit
    return 0.0


def _mean_signed_error(
    mine: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype
) -> float:
    """Returns the mean signed distance from the rounded reference in ulps, upwards or away from
    zero, if it shows truncation.

    0 otherwise. Values that the type represents exactly are ignored.
    """
    import torch

    nearest = exact.to(dtype).double()
    inexact = (nearest != exact) & nearest.isfinite() & mine.isfinite() & eager.isfinite()
    count = int(inexact.sum())
    if count < MIN_ELEMENTS_FOR_MEAN:
        return 0.0
    limits = torch.finfo(dtype)
    size = exact[inexact].abs().clamp(min=limits.smallest_normal)
    unit = torch.exp2(torch.floor(torch.log2(size))) * limits.eps
    mine_off, eager_off = (
        ((t[inexact] - nearest[inexact]) / unit).clamp(-1, 1) for t in (mine, eager)
    )
    away = torch.sign(exact[inexact])
    means = torch.stack(
        [mine_off.mean(), (mine_off * away).mean(), eager_off.mean(), (eager_off * away).mean()]
    )
    up, outwards, *eagers = means.tolist()
    largest = outwards if abs(outwards) > abs(up) else up
    allowed = (
        MAX_MEAN_SIGNED_ERROR + 2 * max(abs(m) for m in eagers) + MEAN_DEVIATIONS / math.sqrt(count)
    )
    return largest if abs(largest) > allowed else 0.0

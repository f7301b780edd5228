"""Checks draws with easy answers: eager rounds each element once, or yields equal rows.

A product with a selection matrix (rows with a single 1 or -1) yields numbers of the other operand,
in any order in which a kernel adds the zeros. A kernel that truncates an operand, or splits it in
two halves, loses bits there that a row's tolerance of sixty ulps accepts. Equal rows expose
stochastic rounding: numbers between two values of a type are rounded differently in every second
row.
"""

from __future__ import annotations

from kernelwright.tools.numerics.pieces import sample_elements
from kernelwright.tools.numerics.tolerance import FP32_EPS, Tensor, as_rows, rows_of

MAX_UNITS = 16.0
"""Maximum deviation of an element in ulps of a row's largest number if eager rounds once; operands
with sixteen-bit mantissas cause up to 64."""
ONE_ROUNDING = 0.51
"""Maximum error of a single rounding, in ulps."""
MIN_ROUNDED_ELEMENTS = 64
MIN_ROWS = 4
MAX_SHARE_OF_OTHERS = 1 / 8
"""Share of the elements that may differ from the first row's. Rounding by chance leaves a third."""
LOST_BITS = (
    "Bits of an operand are lost: eager rounds every element once on these numbers, and this is off by more than "
    "{units:g} units in the last place."
)
ROUNDED_BY_CHANCE = (
    "Equal rows give different numbers: they are rounded by chance, or by where they lie."
)


LAST_BITS = 0b111
SAMPLE = 1 << 16
"""Elements that are looked at for cut bits: an output may take gigabytes."""
MAX_SHARE_OF_SHORT, MIN_SHARE_OF_CUT = 0.25, 0.75
"""Shares of elements whose last three bits are zero: maximum for eager, for which an eighth is
expected by chance, and minimum for a candidate that truncates its answer."""
CUT_BITS = (
    "The last bits of nearly every element are zero, as float32 arithmetic does not leave them."
)


def lost_bits(candidate: Tensor, eager: Tensor, exact: Tensor | None) -> Tensor | None:
    """Returns a boolean for each element of a float32 output, true if bits are lost although eager
    rounds once; None without any."""
    import torch

    if exact is None or exact.shape != candidate.shape:
        return None
    if eager.dtype != torch.float32 or eager.numel() < MIN_ROUNDED_ELEMENTS:
        return None
    wide = exact.double()
    units = torch.exp2(torch.floor(torch.log2(wide.abs().clamp(min=1e-37)))) * FP32_EPS
    if not bool(((eager.double() - wide).abs() <= ONE_ROUNDING * units).all()):
        return None
    rows, columns = rows_of(tuple(wide.shape))
    scale = as_rows(wide, rows, columns).abs().amax(-1, keepdim=True)
    error = as_rows(candidate.double() - wide, rows, columns).abs()
    least = torch.finfo(torch.float32).smallest_normal  # below it a processor may flush
    lost = (error > MAX_UNITS * FP32_EPS * scale + least).reshape(wide.shape)
    return lost if bool(lost.any()) else None


def cut_bits(candidate: Tensor, eager: Tensor) -> Tensor | None:
    """Returns a boolean for each element of a float32 output, true if its last bits are zero
    although eager's are not.

    None if no more elements are so than by chance, in a sample of SAMPLE elements. Example: `(bits
    + 16) & -32` leaves the last five bits of every element zero, as no sum or product of float32
    does.
    """
    import torch

    if eager.dtype != torch.float32 or candidate.dtype != torch.float32:
        return None
    if eager.numel() < MIN_ROUNDED_ELEMENTS or candidate.shape != eager.shape:
        return None
    candidate_sample, eager_sample = (sample_elements(t, SAMPLE) for t in (candidate, eager))
    counts = (eager_sample != 0) & torch.isfinite(eager_sample)
    number = int(counts.sum())
    if (
        number < MIN_ROUNDED_ELEMENTS
        or int((_are_short(eager_sample) & counts).sum()) > MAX_SHARE_OF_SHORT * number
    ):
        return None
    is_cut = int((_are_short(candidate_sample) & counts).sum()) > MIN_SHARE_OF_CUT * number
    return _are_short(candidate) if is_cut else None


def _are_short(numbers: Tensor) -> Tensor:
    """Returns a boolean for each float32 number, true if its last bits are zero."""
    import torch

    short: Tensor = numbers.contiguous().view(torch.int32) & LAST_BITS == 0
    return short


def unequal_rows(candidate: Tensor, eager: Tensor) -> Tensor | None:
    """Returns a boolean for each element of a 16-bit output, true if it differs from the first
    row's although eager's rows are equal.

    None if few do.
    """
    is_asked = eager.is_floating_point() and eager.itemsize == 2 and eager.dim() > 1
    if not is_asked or candidate.shape != eager.shape or eager.numel() < MIN_ROUNDED_ELEMENTS:
        return None
    mine, theirs = (t.reshape(-1, t.shape[-1]) for t in (candidate, eager))
    if mine.shape[0] < MIN_ROWS or not bool((theirs == theirs[:1]).all()):
        return None
    differs = mine != mine[:1]
    share = float(differs.double().mean())
    return differs.reshape(candidate.shape) if share > MAX_SHARE_OF_OTHERS else None

"""Names the pattern of a wrong output as a kernel engineer would see it, with a sentence on where
to look.

Counts, first and worst elements are exact; the pattern is derived from profiles along each
dimension and a sample of at most 16 pieces, so that outputs of 1.6e9 elements take little time. The
order of the tests matters: certain patterns (poison, zeros, NaN) come before likely ones.
"""

from __future__ import annotations

import math
from functools import reduce
from itertools import pairwise

from kernelwright.tools.comparing.wrong_elements import (
    SAMPLED_ELEMENTS_PER_PIECE,
    ElementSample,
    describe_element,
    first_wrong_index,
    sample_wrong,
    worst_wrong_indices,
)
from kernelwright.tools.numerics.tolerance import Tensor, distance, rows_of
from kernelwright.tools.report import Mismatch, Pattern

SMALL_RMS = 0.03
"""Maximum error relative to the output's RMS that may be rounding. A sum of a hundred elements
without one of them has 0.1, of a thousand 0.03; fp8 operands leave 0.04, and count as a mismatch.
"""
CONSTANT_SPREAD = 2e-3
"""Spread over mean under which a ratio or a difference counts as constant."""


NEVER_STORED = (
    "The poison from before the call is still there: these elements are never stored (grid too small, or the store's "
    "mask)."
)
FoundPattern = tuple[Pattern, str]


def explain_mismatch(
    candidate: Tensor, exact: Tensor, wrong: Tensor, poisons: tuple[float, ...] = ()
) -> Mismatch:
    """Describes a wrong output. candidate, exact: the output and its reference; wrong: bool, of
    equal shape.

    poisons: values with which the output was filled before the call (the judge's own bytes are
    always recognised).
    """
    total, count = wrong.numel(), int(wrong.sum())
    if not count:
        return Mismatch(wrong=0, total=total)
    sample = sample_wrong(candidate, exact, wrong)
    pattern, hint = _pattern(candidate, exact, wrong, sample, count, poisons)
    at = first_wrong_index(wrong)
    return Mismatch(
        wrong=count,
        total=total,
        first=describe_element(candidate, exact, at),
        worst=tuple(
            describe_element(candidate, exact, i)
            for i in worst_wrong_indices(candidate, exact, wrong)
        ),
        pattern=pattern,
        hint=hint,
    )


def _pattern(
    candidate: Tensor,
    exact: Tensor,
    wrong: Tensor,
    s: ElementSample,
    count: int,
    poisons: tuple[float, ...],
) -> FoundPattern:
    share = count / wrong.numel()
    profiles = [_wrong_coordinates(wrong, d) for d in range(wrong.dim())]
    return (
        _unwritten(s, poisons)
        or _non_finite(s, wrong)
        or _zeros(s, share)
        or _transposed(candidate, exact)
        or _constant(s, exact)
        or _rounding(s, exact, share)
        or _last_block(s, profiles, share, wrong)
        or _strided(s, profiles, count, wrong)
        or _large_values(s, share)
        or _some_rows(profiles, wrong, share)
        or (
            Pattern.EVERYWHERE,
            f"{share:.0%} of the elements are wrong with no pattern to them: the formula, an index or an "
            "operand differs.",
        )
    )


def _unwritten(s: ElementSample, poisons: tuple[float, ...]) -> FoundPattern | None:
    import torch

    is_poison = torch.zeros_like(s.got, dtype=torch.bool)
    for value in poisons:
        is_poison |= (s.got == value) | (s.got.isnan() if math.isnan(value) else False)
    if s.poisoned or float(is_poison.double().mean()) > 0.5:
        return Pattern.UNWRITTEN, NEVER_STORED
    return None


def _zeros(s: ElementSample, share: float) -> FoundPattern | None:
    if not bool((s.got == 0).all()) or bool((s.want == 0).any()):
        return None
    part = (
        "The output is zero"
        if share > 0.9
        else f"{share:.1%} of the output is zero where it should not be"
    )
    return (
        Pattern.ZEROS,
        f"{part}: not written, or written from an accumulator that was never added to.",
    )


def _non_finite(s: ElementSample, wrong: Tensor) -> FoundPattern | None:
    bad = ~s.got.isfinite() & s.want.isfinite()
    if float(bad.double().mean()) <= 0.5:
        return None
    rows, columns = rows_of(tuple(wrong.shape))
    hit = (s.index[bad] // columns).unique()
    kind = "NaN" if bool(s.got[bad].isnan().any()) else "infinity"
    large = float(s.want[bad].abs().min())
    if kind == "infinity" and large > s.right_high:
        return (
            Pattern.LARGE_VALUES,
            f"Infinity where the value is over {large:.3g}: an overflow of the type it is computed or stored in.",
        )
    location = f"row {int(hit[0])} on" if rows > 1 else f"element {int(s.index[bad][0])} on"
    return (
        Pattern.NON_FINITE_ROWS,
        f"{kind} from {location}: a reduction meets it (0/0, inf - inf, a masked load without other=, exp "
        "without the row's maximum taken "
        "off).",
    )


def _transposed(candidate: Tensor, exact: Tensor) -> FoundPattern | None:
    if exact.dim() < 2 or min(exact.shape[-2:]) < 2:
        return None
    m, n = exact.shape[-2:]
    got, want = (t.detach().reshape(-1, m, n)[0] for t in (candidate, exact))
    if m == n:
        turned = want[:1024, :1024].T
        got, same = got[:1024, :1024], want[:1024, :1024]
    elif m * n <= 1 << 22:
        turned, same = want.T.reshape(m, n), want
    else:
        return None
    scale = float(want.double().square().mean().sqrt())
    differs = float(distance(turned, same).clamp(max=1e300).mean()) > 0.01 * scale
    if scale and differs and float(distance(got, turned).max()) <= 0.02 * scale:
        return (
            Pattern.TRANSPOSED,
            "The output is the reference's transpose: strides or the two program ids are swapped.",
        )
    return None


def _constant(s: ElementSample, exact: Tensor) -> FoundPattern | None:
    """Finds a constant ratio or difference: over everything, within each row, or down each column."""
    if s.index.numel() < 3 or not bool(s.got.isfinite().all()):
        return None
    columns = exact.shape[-1] if exact.dim() else 1
    solid = s.want.abs() > 1e-3 * max(s.rms, 1e-300)
    ratio, gap = s.got[solid] / s.want[solid], s.gap
    if (
        solid.sum() >= 3
        and _are_about_equal(ratio)
        and _are_about_equal(ratio - 1, 10 * CONSTANT_SPREAD)
    ):
        return (
            Pattern.SCALED,
            f"The output is {float(ratio.median()):.6g} times the reference: a factor (a mean's divisor, a "
            "scale, 1/sqrt(d)).",
        )
    if _are_about_equal(gap) and not _are_about_equal(s.want):
        added = float(gap.median())
        sign = "minus" if added < 0 else "plus"
        return (
            Pattern.SHIFTED,
            f"The output is the reference {sign} {abs(added):.6g}: a missing or doubled constant term.",
        )
    groups = ((s.index // columns, "each row", "row"), (s.index % columns, "each column", "column"))
    for group, name, word in groups:
        if (
            solid.sum() >= 8
            and _same_within(ratio, group[solid])
            and _same_within(ratio - 1, group[solid], 0.1)
        ):
            return (
                Pattern.SCALED,
                f"The ratio to the reference is constant in {name}: a per-{word} divisor or scale (sum, "
                "norm, variance, weight) is "
                "missing.",
            )
        if s.index.numel() >= 8 and _same_within(gap, group) and not _same_within(s.want, group):
            return (
                Pattern.SHIFTED,
                f"The difference is constant in {name}: a per-{word} term (maximum, mean, bias) is missing.",
            )
    return None


def _are_about_equal(values: Tensor, spread: float = CONSTANT_SPREAD) -> bool:
    middle = float(values.median().abs())
    return middle > 0 and float((values - values.median()).abs().max()) <= spread * middle


def _same_within(values: Tensor, group: Tensor, allowed: float = 5 * CONSTANT_SPREAD) -> bool:
    """Returns True for values constant within each group but not over all; at least half must be in
    groups of several elements."""
    import numpy
    import torch

    unique_results = numpy.unique(
        group.numpy(), return_inverse=True, return_counts=True
    )  # torch's takes ten times as long
    names, group_index, size = (torch.from_numpy(result) for result in unique_results)
    large = size[group_index] >= 3
    if names.numel() < 2 or float(large.double().mean()) < 0.5:
        return False
    mean = (
        torch.zeros(names.numel(), dtype=values.dtype).scatter_add_(0, group_index, values) / size
    )
    spread = torch.zeros_like(mean).scatter_reduce_(
        0, group_index, (values - mean[group_index]).abs(), "amax"
    )
    comparable = (size >= 3) & (mean.abs() > 0)
    tight = spread[comparable] <= allowed * mean[comparable].abs()
    return comparable.any().item() is True and float(tight.double().mean()) > 0.95


def _rounding(s: ElementSample, exact: Tensor, share: float) -> FoundPattern | None:
    gap = s.gap.abs()
    if not s.rms or not exact.is_floating_point() or not bool(gap.isfinite().all()):
        return None
    size = float(gap.square().mean().sqrt()) / s.rms
    if size > SMALL_RMS or float((gap / (s.want.abs() + s.rms)).max()) > 0.3:
        return None
    rows, columns = rows_of(tuple(exact.shape))
    spread = (s.index % columns).unique().numel() > columns / 4 or (
        s.index // columns
    ).unique().numel() > max(16, rows // 2)
    if exact.numel() > 16 and not (share > 0.01 and spread):
        return None
    return (
        Pattern.ROUNDING,
        f"Right up to rounding (error {size:.1e} of the output's size) but worse than the problem's own "
        "precision: tl.dot on fp32 is tf32 by "
        "default"
        ' (input_precision="ieee" or "tf32x3"), accumulate in fp32, and use no low-precision or approximate function.',
    )


def _wrong_coordinates(wrong: Tensor, dim: int) -> list[int]:
    """Returns the coordinates along `dim` with a wrong element, ascending."""
    other_dimensions = [d for d in range(wrong.dim()) if d != dim]
    hit = wrong.sum(dim=other_dimensions) if other_dimensions else wrong
    return hit.nonzero().flatten().tolist() if hit.numel() <= 1 << 22 else []


def _last_block(
    s: ElementSample, profiles: list[list[int]], share: float, wrong: Tensor
) -> FoundPattern | None:
    cause = "the last block's mask (or a size that is not a multiple of the block) is wrong."
    for d in reversed(range(wrong.dim())):
        hit, size = profiles[d], wrong.shape[d]
        if (
            hit
            and hit[0] > 0
            and hit[-1] == size - 1
            and size - hit[0] <= max(1, size // 2)
            and len(hit) >= 0.9 * (size - hit[0])
        ):
            location = f"from {hit[0]} of {size} along dimension {d}"
            return Pattern.LAST_BLOCK, f"Wrong only at the end, {location}: {cause}"
    total, first, last = wrong.numel(), int(s.index[0]), int(s.index[-1])
    if (
        first
        and first >= total // 2
        and last >= total - 1 - total // 100
        and share * total >= 0.9 * (total - first)
    ):
        return Pattern.LAST_BLOCK, f"Wrong only from element {first} of {total} to the end: {cause}"
    return None


def _strided(
    s: ElementSample, profiles: list[list[int]], count: int, wrong: Tensor
) -> FoundPattern | None:
    flat = s.index[: SAMPLED_ELEMENTS_PER_PIECE - 1].tolist()
    step = _common_step(flat)
    if step > 1 and len(flat) >= 3 and count >= 0.8 * (wrong.numel() - flat[0]) / step:
        return (
            Pattern.STRIDED,
            f"Every {step}th element is wrong, from element {flat[0]} on: a stride or an interleaved index.",
        )
    for d in reversed(range(wrong.dim())):
        hit, size = profiles[d], wrong.shape[d]
        step = _common_step(hit)
        if step > 1 and len(hit) >= 3 and len(hit) >= 0.8 * size // step:
            return (
                Pattern.STRIDED,
                f"Every {step}th index along dimension {d} is wrong, from {hit[0]} on: a stride or an "
                "interleaved "
                "index.",
            )
    return None


def _common_step(positions: list[int]) -> int:
    return reduce(math.gcd, (b - a for a, b in pairwise(positions)), 0)


def _large_values(s: ElementSample, share: float) -> FoundPattern | None:
    if share > 0.5 or not math.isfinite(s.right_high) or not s.right_high:
        return None
    smallest = float(s.want.abs().nan_to_num(nan=0.0).kthvalue(max(1, s.want.numel() // 20)).values)
    if smallest < s.right_high:
        return None
    return (
        Pattern.LARGE_VALUES,
        f"Wrong only where the value is over {smallest:.3g}: an overflow, a clamp, or an accumulator too "
        "narrow for the large "
        "values.",
    )


def _some_rows(profiles: list[list[int]], wrong: Tensor, share: float) -> FoundPattern | None:
    for d, hit in enumerate(profiles):
        size = wrong.shape[d]
        if hit and len(hit) < 0.9 * size and share * size >= 0.5 * len(hit):
            shown = ", ".join(map(str, hit[:6])) + (" ..." if len(hit) > 6 else "")
            return (
                Pattern.SOME_ROWS,
                f"Only {len(hit)} of {size} indices along dimension {d} are wrong ({shown}): these "
                "programs compute or store something "
                "else.",
            )
    return None

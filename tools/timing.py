"""Medians with confidence intervals. Milliseconds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tools.results import Timing

Z95 = 1.96


def timing(samples: Sequence[float]) -> Timing:
    """The median with its 95 % interval by order statistics (binomial, normal approximation: Hahn and Meeker 1991, 5.2). Needs a sample."""
    ordered = sorted(samples)
    n = len(ordered)
    half = Z95 * math.sqrt(n) / 2
    low = ordered[max(math.floor(n / 2 - half), 0)]
    high = ordered[min(math.ceil(n / 2 + half), n - 1)]
    return Timing(
        median=statistics.median(ordered), low=low, high=high, mean=statistics.fmean(ordered), std=statistics.stdev(ordered) if n > 1 else 0.0, minimum=ordered[0], calls=n,
    )  # fmt: skip


def settled(t: Timing, width: float = 0.01) -> bool:
    """Whether the interval is narrower than this share of the median."""
    return t.calls >= 16 and (t.high - t.low) <= width * t.median


def ratio(reference: Timing, candidate: Timing) -> tuple[float, float]:
    """Speedup, and its lower 95 % bound (the ends of both intervals that are least kind to the candidate)."""
    return reference.median / candidate.median, reference.low / candidate.high

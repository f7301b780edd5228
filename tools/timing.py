"""Blocks of timed calls, which of them can be believed, and medians with confidence intervals. Milliseconds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.results import Timing

Z95 = 1.96
WALL_SHARE = 0.7
"""Events must claim at least this share of what the judge's clock saw."""
MOST_DOUBTED = 12
"""Blocks, none of which can be believed, before that is called a cheat: a loaded machine delays many, a cheat lies in all."""


@dataclass(frozen=True)
class Block:
    times: list[float]
    """Milliseconds of each call, as the events claim."""
    seen: float
    """Milliseconds a call that the judge's clock saw at least."""
    allocated: int = 0

    @property
    def claimed(self) -> float:
        return statistics.fmean(self.times)

    @property
    def believed(self) -> bool:
        return self.claimed >= WALL_SHARE * self.seen


@dataclass
class Samples:
    blocks: list[Block] = field(default_factory=list)
    eager: list[float] = field(default_factory=list)

    @property
    def believed(self) -> list[Block]:
        return [b for b in self.blocks if b.believed]

    @property
    def candidate(self) -> list[float]:
        """Milliseconds of each call in the blocks that the judge's clock bears out; no other counts."""
        return [ms for block in self.believed for ms in block.times]

    @property
    def doubted(self) -> bool:
        """Whether one more block may tell a cheat from a busy machine."""
        return not self.believed and len(self.blocks) < MOST_DOUBTED


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

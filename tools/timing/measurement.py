"""The clock's results as values, and their statistics. Times are in milliseconds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from kernelwright.tools.report import Clocks, Neighbour, Number, Timing, TimingMethod, Value

Z_SCORE_95 = 1.96


class StepTime(Value):
    """Time of a launch, or of an operator of torch with work for the device."""

    name: str
    grid: tuple[int, int, int] = (1, 1, 1)
    """Programs of a launch's grid; (1, 1, 1) for an operator."""
    launch: bool = True
    """False for an operator of torch."""
    milliseconds: Number
    """Time of the step alone, with the cache as left by the step before."""
    share: Number
    """Share of the time of all steps of the call, 0 to 1."""


class RankedConfigurations(Value):
    """Ranking of the configurations of an autotuned launch at this size."""

    number: int
    """The number of the choice among the choices of the call, from 0."""
    ranked: tuple[int, ...] = ()
    """Configurations, fastest first, without those which exceed the GPU's memory or were not
    reached in time.
    """
    milliseconds: tuple[Number, ...] = ()
    """The time of each alternative, in the same order."""


class Measurement(Value):
    """Times of a candidate and its reference on a GPU."""

    device: str
    """The name of the GPU."""
    candidate: Timing
    eager: Timing
    speedup: Number
    """Eager's median over the candidate's."""
    speedup_low: Number
    """The lower end of its 95 % interval."""
    host_ms: Number
    """Host time for launching the steps of a call of the candidate without a graph, in
    milliseconds. Enters no speedup.
    """
    eager_host_ms: Number
    """The same for the reference."""
    wall_ms: Number
    """A call with its preparation, by the judge's own clock."""
    eager_drift: Number
    """The ratio of the reference's median beside this candidate to its median of record, minus 1."""
    steps: tuple[StepTime, ...] = ()
    """Steps in order, at most 256."""
    clocks: Clocks | None = None
    neighbours: tuple[Neighbour, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: Number = 0.0


def summarise_samples(samples: Sequence[float], method: TimingMethod | None = None) -> Timing:
    """Returns the median with its 95 % interval by order statistics (binomial, normal
    approximation: Hahn and Meeker 1991, 5.2). Needs a sample.

    method: timing method of all samples; None if no speedup is computed from them.
    """
    ordered = sorted(samples)
    n = len(ordered)
    half = Z_SCORE_95 * math.sqrt(n) / 2
    low = ordered[max(math.floor(n / 2 - half), 0)]
    high = ordered[min(math.ceil(n / 2 + half), n - 1)]
    return Timing(
        median=statistics.median(ordered),
        low=low,
        high=high,
        mean=statistics.fmean(ordered),
        std=statistics.stdev(ordered) if n > 1 else 0.0,
        minimum=ordered[0],
        calls=n,
        method=method,
    )


def is_settled(timing: Timing, width: float = 0.01) -> bool:
    """Whether the interval is narrower than this share of the median."""
    return timing.calls >= 16 and (timing.high - timing.low) <= width * timing.median

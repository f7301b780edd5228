"""Successive halving of timed configurations (Jamieson and Talwalkar 2016).

All configurations are timed with a few calls, the slower half is dropped, and the rest is timed
with twice as many calls, round after round. Confidence intervals speed this up: a configuration
whose interval lies above the best's is dropped at once.

Example: halve(["a", "b", "c", "d"], measure, budget) times 4 calls of each. With medians a 1.0, b
1.1, c 2.0, d 3.0 ms the half [a, b] stays; b stays only if its interval overlaps a's. The next
round times 8 calls of each, until one remains with a settled median.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernelwright.tools.report import Timing
from kernelwright.tools.timing.measurement import is_settled, summarise_samples

FIRST_CALLS = 4
"""Calls of each configuration in the first round; each later round doubles them."""
MAX_HALVING_ROUNDS = 7
"""Maximum number of rounds: the last one times 4 * 2 ** 6 = 256 calls of each configuration."""

Measure = Callable[[str, int, int], Sequence[float] | None]
"""Times a configuration: takes key, round and number of calls; returns the milliseconds of each
call. None: the configuration is wrong or cannot be launched.
"""


@dataclass
class TuningBudget:
    """What may still be spent."""

    launches: int
    seconds: float
    spent: Callable[[], float] = lambda: 0.0
    """Returns the GPU seconds used so far."""
    used: int = 0

    def allows(self, calls: int) -> bool:
        """Returns whether `calls` more launches are within the budget and seconds remain."""
        return self.used + calls <= self.launches and self.spent() < self.seconds


@dataclass
class HalvingOutcome:
    """The measurements and decisions of a halving."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    """Milliseconds of each call, by the configuration's key."""
    failed: list[str] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    """The round after which a configuration was dropped, by key."""
    stopped_by_budget: bool = False

    def timings(self) -> dict[str, Timing]:
        """Returns the timings by key: survivors first, then dropped configurations, the later
        dropped first; within each round the fastest first. A median of a few calls says less than
        a median of hundreds.
        """
        timings: dict[str, Timing] = {}
        for key, times in self.samples.items():
            if times and key not in self.failed:
                timings[key] = summarise_samples(times)

        def rank(key: str) -> tuple[int, float]:
            last_round = self.dropped.get(key, MAX_HALVING_ROUNDS)
            return -last_round, timings[key].median

        return {key: timings[key] for key in sorted(timings, key=rank)}


def halve(
    keys: Sequence[str], measure: Measure, budget: TuningBudget, always: str = "", keep: int = 1
) -> HalvingOutcome:
    """Times configurations until one is left, all active medians are settled, or the budget is
    spent.

    always: key that is never dropped (the file's configuration, the baseline of the comparison).
    keep: number of configurations wanted at the end.
    """
    halved = HalvingOutcome()
    active = list(dict.fromkeys([always, *keys] if always else keys))
    for number in range(MAX_HALVING_ROUNDS):
        calls = FIRST_CALLS << number
        for key in list(active):
            if not budget.allows(calls):
                halved.stopped_by_budget = True
                return halved
            times = measure(key, number, calls)
            budget.used += calls
            if times is None:
                halved.failed.append(key)
                active.remove(key)
            else:
                halved.samples.setdefault(key, []).extend(times)
        timings = {key: summarise_samples(halved.samples[key]) for key in active}
        survivors = _faster_half(timings, always, keep)
        halved.dropped |= {key: number for key in active if key not in survivors}
        active = survivors
        contenders = len(active) - (always in active)
        if contenders <= keep and _is_decided(halved, active):
            break
    return halved


def _faster_half(timings: Mapping[str, Timing], always: str, keep: int) -> list[str]:
    """Returns the faster half, without configurations that are certainly slower than the best."""
    if not timings:
        return []
    ranked = sorted(timings, key=lambda key: timings[key].median)
    best = timings[ranked[0]]
    half = ranked[: max(keep, -(-len(ranked) // 2))]  # the half is rounded up
    survivors = half[:keep]
    for key in half[keep:]:
        if timings[key].low <= best.high:  # the intervals overlap: not certainly slower
            survivors.append(key)
    if always in timings and always not in survivors:
        survivors.append(always)
    return survivors


def _is_decided(halved: HalvingOutcome, active: Sequence[str]) -> bool:
    return all(is_settled(summarise_samples(halved.samples[key])) for key in active)

"""Successive halving on a clock (Jamieson and Talwalkar 2016): all configurations are timed a little, the slower half
is dropped, the rest is timed longer. Intervals decide with it: what is certainly slower than the best goes at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernelwright.tools.report import Timing
from kernelwright.tools.timing.measurement import is_settled, summarise_samples

FIRST_CALLS = 4
MAX_HALVING_ROUNDS = 7

Measure = Callable[[str, int, int], Sequence[float] | None]
"""Key, round and number of calls -> milliseconds of each call; None where the configuration is wrong or cannot be
launched."""


@dataclass
class TuningBudget:
    """What may still be spent."""

    launches: int
    seconds: float
    spent: Callable[[], float] = lambda: 0.0
    """Seconds so far."""
    used: int = 0

    def allows(self, calls: int) -> bool:
        """Whether so many launches more are within the budget, and its seconds are not spent."""
        return self.used + calls <= self.launches and self.spent() < self.seconds


@dataclass
class HalvingOutcome:
    """How it went."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    """Milliseconds by key."""
    failed: list[str] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    """Key -> the round after which it was dropped."""
    stopped_by_budget: bool = False

    def timings(self) -> dict[str, Timing]:
        """Returns the timings by key: those that were left at the end before those that were dropped, the later ones
        first; fastest first among them. A median of the first few calls says less than one of hundreds.
        """
        found = {
            key: summarise_samples(times)
            for key, times in self.samples.items()
            if times and key not in self.failed
        }
        return dict(
            sorted(
                found.items(),
                key=lambda i: (-self.dropped.get(i[0], MAX_HALVING_ROUNDS), i[1].median),
            )
        )


def halve(
    keys: Sequence[str], measure: Measure, budget: TuningBudget, always: str = "", keep: int = 1
) -> HalvingOutcome:
    """Times configurations until one is left, all that are left are settled, or the budget is spent.

    always: a key that is never dropped (the file's own configuration, which the best is compared with). keep: so many
    are wanted at the end.
    """
    halved = HalvingOutcome()
    left = list(dict.fromkeys([*([always] if always else []), *keys]))
    for number in range(MAX_HALVING_ROUNDS):
        calls = FIRST_CALLS << number
        for key in list(left):
            if not budget.allows(calls):
                halved.stopped_by_budget = True
                return halved
            times = measure(key, number, calls)
            budget.used += calls
            if times is None:
                halved.failed.append(key)
                left.remove(key)
            else:
                halved.samples.setdefault(key, []).extend(times)
        kept = _kept({key: summarise_samples(halved.samples[key]) for key in left}, always, keep)
        halved.dropped |= {key: number for key in left if key not in kept}
        left = kept
        if len([key for key in left if key != always]) <= keep and _is_decided(halved, left):
            break
    return halved


def _kept(found: Mapping[str, Timing], always: str, keep: int) -> list[str]:
    """The faster half, without those that are certainly slower than the best."""
    if not found:
        return []
    ranked = sorted(found, key=lambda key: found[key].median)
    best = found[ranked[0]]
    half = ranked[: max(keep, -(-len(ranked) // 2))]
    kept = [key for i, key in enumerate(half) if i < keep or found[key].low <= best.high]
    return kept if not always or always in kept or always not in found else [*kept, always]


def _is_decided(halved: HalvingOutcome, left: Sequence[str]) -> bool:
    return all(is_settled(summarise_samples(halved.samples[key])) for key in left)

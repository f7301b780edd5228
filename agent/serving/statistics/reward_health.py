"""Reward health: at which rung candidates end, why, and how many groups teach nothing. A pure function of scores."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from kernelwright.agent.serving.wire import Score, WireValue
from kernelwright.tools.faults import Fault, Number
from kernelwright.tools.report import Rung

TREND_BINS = 24
"""Bins of the trend, each with as many candidates as the others."""
SPEEDUP_EDGES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Edges between the bins of speedups."""
MAX_REASONS = 30
"""Reasons that are listed, the most frequent first."""


class ScoredSubmission(NamedTuple):
    """One submission whose verdict has a report."""

    client: str
    group: str | None
    problem: str
    ended: float
    score: Score


class RungShare(WireValue):
    """How many candidates ended at one rung."""

    rung: Rung
    ended: int
    """Candidates whose verdict ended here, right or wrong."""
    correct: int
    share: float


class Reason(WireValue):
    """One fault at one rung, with how often it came and an example."""

    rung: Rung
    fault: Fault
    count: int
    example: str


class PromptGroups(WireValue):
    """Rollouts of one prompt: flat where all have the same score."""

    groups: int = 0
    """Groups with at least two finished verdicts."""
    flat: int = 0
    flat_wrong: int = 0
    flat_right: int = 0


class TrendBin(WireValue):
    """The candidates of one stretch of time; `from` is in seconds since 1970."""

    from_: float = Field(alias="from", serialization_alias="from")
    candidates: int
    correct: int
    correct_share: float
    median_speedup: Number | None = None


class SpeedupBin(WireValue):
    """How many timed candidates have a speedup from `low` on, and below `high`; None for no upper end."""

    low: float
    high: float | None = None
    count: int


class RewardHealth(WireValue):
    """Whether rewards still tell candidates apart: where they end, why, and how that changes."""

    candidates: int
    correct: int
    masked: int = 0
    """Candidates that must not train: a fault that a loaded machine may cause."""
    speedups: tuple[SpeedupBin, ...] = ()
    """Distribution of the speedups over eager, at their lower bounds."""
    rungs: tuple[RungShare, ...] = ()
    reasons: tuple[Reason, ...] = ()
    groups: PromptGroups = PromptGroups()
    trend: tuple[TrendBin, ...] = ()


def reward_health(samples: Sequence[ScoredSubmission]) -> RewardHealth:
    """Computes the health of rewards from samples in any order."""
    ordered = sorted(samples, key=lambda sample: sample.ended)
    return RewardHealth(
        candidates=len(ordered),
        correct=sum(sample.score.correct for sample in ordered),
        masked=sum(sample.score.mask for sample in ordered),
        speedups=_speedups(ordered),
        rungs=_rungs(ordered),
        reasons=_reasons(ordered),
        groups=_groups(ordered),
        trend=_trend(ordered),
    )


def _rungs(samples: Sequence[ScoredSubmission]) -> tuple[RungShare, ...]:
    ended = Counter(sample.score.ended_at for sample in samples)
    right = Counter(sample.score.ended_at for sample in samples if sample.score.correct)
    return tuple(
        RungShare(
            rung=rung, ended=ended[rung], correct=right[rung], share=ended[rung] / len(samples)
        )
        for rung in Rung
        if ended[rung]
    )


def _speedups(samples: Sequence[ScoredSubmission]) -> tuple[SpeedupBin, ...]:
    speedups = [_speedup_low(sample.score) for sample in samples]
    timed = [speedup for speedup in speedups if speedup is not None]
    edges = (0.0, *SPEEDUP_EDGES)
    return tuple(
        SpeedupBin(
            low=low,
            high=high,
            count=sum(low <= speedup and (high is None or speedup < high) for speedup in timed),
        )
        for low, high in zip(edges, (*SPEEDUP_EDGES, None), strict=True)
    )


def _speedup_low(score: Score) -> float | None:
    return score.speedup if score.speedup_low is None else score.speedup_low


def _reasons(samples: Sequence[ScoredSubmission]) -> tuple[Reason, ...]:
    counts: Counter[tuple[Rung, Fault]] = Counter()
    examples: dict[tuple[Rung, Fault], str] = {}
    for sample in samples:
        if sample.score.fault is not None:
            key = (sample.score.ended_at, sample.score.fault)
            counts[key] += 1
            examples[key] = sample.score.explanation
    return tuple(
        Reason(rung=rung, fault=fault, count=count, example=examples[rung, fault])
        for (rung, fault), count in counts.most_common(MAX_REASONS)
    )


def _groups(samples: Sequence[ScoredSubmission]) -> PromptGroups:
    groups: defaultdict[tuple[str, str, str], list[Score]] = defaultdict(list)
    for sample in samples:
        if sample.group is not None:
            groups[sample.client, sample.group, sample.problem].append(sample.score)
    several = [scores for scores in groups.values() if len(scores) > 1]
    flat = [scores for scores in several if len({_signal(score) for score in scores}) == 1]
    right = sum(scores[0].correct for scores in flat)
    return PromptGroups(
        groups=len(several), flat=len(flat), flat_wrong=len(flat) - right, flat_right=right
    )


def _signal(score: Score) -> tuple[object, ...]:
    """What a reward could tell apart."""
    return (score.ended_at, score.compiled, score.correct, score.gate, score.speedup, score.share)


def _trend(samples: Sequence[ScoredSubmission]) -> tuple[TrendBin, ...]:
    if not samples:
        return ()
    size = -(-len(samples) // TREND_BINS)
    return tuple(_bin(samples[start : start + size]) for start in range(0, len(samples), size))


def _bin(samples: Sequence[ScoredSubmission]) -> TrendBin:
    speedups = [sample.score.speedup for sample in samples if sample.score.speedup is not None]
    correct = sum(sample.score.correct for sample in samples)
    first = {"from": samples[0].ended}
    return TrendBin(
        candidates=len(samples),
        correct=correct,
        correct_share=correct / len(samples),
        median_speedup=statistics.median(speedups) if speedups else None,
        **first,
    )

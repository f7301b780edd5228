"""Reward health: last rungs, faults and rewards of candidates, and groups without a learning
signal.

A pure function of scores and a reward preset. Example: four rollouts of a prompt that all fail at
compilation have equal scores. They form a flat group: every advantage inside the group is 0, so the
group teaches nothing.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from kernelwright.agent.rewards.reward_parts import (
    PRESET_WEIGHTS,
    Findings,
    is_kept,
    reward_parts,
)
from kernelwright.agent.serving.wire import Score, WireValue
from kernelwright.tools.faults import Fault, Number
from kernelwright.tools.report import Rung

TREND_BINS = 24
"""Bins of the trend, each with as many candidates as the others."""
SPEEDUP_EDGES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Edges between the bins of speedups."""
REWARD_EDGES = (-0.25, 0.0, 0.02, 0.05, 0.5, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Edges between the bins of rewards: cheats, no kernel, a wrong kernel, then correct ones by their speed."""
DEFAULT_PRESET = "default"
MAX_REASONS = 30
"""Maximum number of listed reasons, most frequent first."""
MAX_PROBLEMS = 50
"""Maximum number of listed problems, largest number of candidates first."""
MAX_GROUPS = 50
"""Maximum number of listed groups, newest first."""


class ScoredSubmission(NamedTuple):
    """Submission of a verdict with a report."""

    client: str
    group: str | None
    problem: str
    ended: float
    score: Score
    candidate_hash: str = ""
    """Hash of the candidate; decides on its rejection under a preset with random rejection."""


class RungShare(WireValue):
    """Number of candidates with this last rung."""

    rung: Rung
    ended: int
    """Candidates whose verdict ended here, right or wrong."""
    correct: int
    share: float


class Reason(WireValue):
    """Fault at a rung, with its frequency and an example."""

    rung: Rung
    fault: Fault
    count: int
    example: str


class PromptGroups(WireValue):
    """Numbers of groups (rollouts of a prompt); a flat group has equal scores."""

    groups: int = 0
    """Groups with at least two finished verdicts."""
    flat: int = 0
    flat_wrong: int = 0
    flat_right: int = 0


class TrendBin(WireValue):
    """Candidates of a time interval; `from` in seconds since 1970."""

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


class RewardBin(WireValue):
    """Number of candidates whose reward is at least `low` and below `high`; None for no upper end."""

    low: float
    high: float | None = None
    count: int


class ProblemRewards(WireValue):
    """Rewards of the candidates on a problem."""

    problem: str
    candidates: int
    correct: int
    masked: int
    mean_reward: Number | None = None
    """Mean reward of the trainable candidates; None if there are none."""


class GroupRewards(WireValue):
    """Rewards of the candidates in a group (rollouts of a prompt)."""

    client: str
    group: str
    problem: str
    candidates: int
    correct: int
    masked: int
    lowest: Number | None = None
    """Smallest reward of the trainable candidates; None if there are none."""
    highest: Number | None = None


class RewardHealth(WireValue):
    """Statistics about the learning signal in rewards: last rungs, reasons, distribution, trend."""

    candidates: int
    correct: int
    preset: str = DEFAULT_PRESET
    """Preset behind `rewards`, `problems` and `newest_groups`."""
    rewards: tuple[RewardBin, ...] = ()
    """Distribution of the trainable candidates' rewards."""
    problems: tuple[ProblemRewards, ...] = ()
    newest_groups: tuple[GroupRewards, ...] = ()
    masked: int = 0
    """Number of candidates excluded from training: their fault may be caused by a loaded machine.
    """
    speedups: tuple[SpeedupBin, ...] = ()
    """Distribution of the speedups over eager, at their lower bounds."""
    rungs: tuple[RungShare, ...] = ()
    reasons: tuple[Reason, ...] = ()
    groups: PromptGroups = PromptGroups()
    trend: tuple[TrendBin, ...] = ()


def reward_health(
    samples: Sequence[ScoredSubmission], preset: str = DEFAULT_PRESET
) -> RewardHealth:
    """Computes the health of rewards from samples in any order. Raises KeyError for an unknown preset."""
    ordered = sorted(samples, key=lambda sample: sample.ended)
    rewards = [reward_of(sample.score, preset, sample.candidate_hash) for sample in ordered]
    return RewardHealth(
        candidates=len(ordered),
        preset=preset,
        rewards=_reward_bins(rewards),
        problems=_problems(ordered, rewards),
        newest_groups=_newest_groups(ordered, rewards),
        correct=sum(sample.score.correct for sample in ordered),
        masked=sum(sample.score.mask for sample in ordered),
        speedups=_speedups(ordered),
        rungs=_rungs(ordered),
        reasons=_reasons(ordered),
        groups=_groups(ordered),
        trend=_trend(ordered),
    )


def reward_of(score: Score, preset: str, candidate_hash: str) -> float | None:
    """Returns the reward of a score under a preset; None for a candidate excluded from training.

    `rl` and the plugs use the same formula (agent/rewards/reward_parts.py).
    """
    if score.mask:
        return None
    findings = Findings(
        follows_rule=score.gate > 0.0,
        is_cheat=score.fault is Fault.CHEAT,
        compiled=score.compiled,
        checks_passed=score.checks_passed,
        checks_made=score.checks_made,
        correct=score.correct,
        is_narrow=bool(score.narrow_contract),
        speedup_low=_speedup_low(score),
        compile_speedup_low=score.compile_speedup_low,
        share=score.time_share,
    )
    weights = PRESET_WEIGHTS[preset]
    if not is_kept(weights, findings, candidate_hash):
        return None
    return math.fsum(reward_parts(weights, findings).values())


def _reward_bins(rewards: Sequence[float | None]) -> tuple[RewardBin, ...]:
    counts = Counter(bisect_right(REWARD_EDGES, reward) for reward in rewards if reward is not None)
    highs = (*REWARD_EDGES[1:], None)
    # A reward below the first edge, which only a user's own weights could give, counts in the first bin.
    return tuple(
        RewardBin(low=low, high=high, count=counts[index] + (counts[0] if index == 1 else 0))
        for index, (low, high) in enumerate(zip(REWARD_EDGES, highs, strict=True), 1)
    )


def _problems(
    samples: Sequence[ScoredSubmission], rewards: Sequence[float | None]
) -> tuple[ProblemRewards, ...]:
    by_problem: defaultdict[str, list[tuple[Score, float | None]]] = defaultdict(list)
    for sample, reward in zip(samples, rewards, strict=True):
        by_problem[sample.problem].append((sample.score, reward))
    largest = sorted(by_problem, key=lambda problem: -len(by_problem[problem]))[:MAX_PROBLEMS]
    return tuple(_of_problem(problem, by_problem[problem]) for problem in largest)


def _of_problem(problem: str, scored: Sequence[tuple[Score, float | None]]) -> ProblemRewards:
    trained = [reward for _, reward in scored if reward is not None]
    return ProblemRewards(
        problem=problem,
        candidates=len(scored),
        correct=sum(score.correct for score, _ in scored),
        masked=len(scored) - len(trained),
        mean_reward=statistics.fmean(trained) if trained else None,
    )


def _newest_groups(
    samples: Sequence[ScoredSubmission], rewards: Sequence[float | None]
) -> tuple[GroupRewards, ...]:
    by_group: dict[tuple[str, str, str], list[tuple[Score, float | None]]] = {}
    for sample, reward in zip(reversed(samples), reversed(rewards), strict=True):
        if sample.group is not None:
            key = (sample.client, sample.group, sample.problem)
            by_group.setdefault(key, []).append((sample.score, reward))
    newest = list(by_group)[:MAX_GROUPS]
    return tuple(_of_group(key, by_group[key]) for key in newest)


def _of_group(
    key: tuple[str, str, str], scored: Sequence[tuple[Score, float | None]]
) -> GroupRewards:
    client, group, problem = key
    trained = [reward for _, reward in scored if reward is not None]
    return GroupRewards(
        client=client,
        group=group,
        problem=problem,
        candidates=len(scored),
        correct=sum(score.correct for score, _ in scored),
        masked=len(scored) - len(trained),
        lowest=min(trained, default=None),
        highest=max(trained, default=None),
    )


def _rungs(samples: Sequence[ScoredSubmission]) -> tuple[RungShare, ...]:
    ended = Counter(sample.score.ended_at for sample in samples)
    right = Counter(sample.score.ended_at for sample in samples if sample.score.correct)
    shares: list[RungShare] = []
    for rung in Rung:
        if count := ended[rung]:
            share = count / len(samples)
            shares.append(RungShare(rung=rung, ended=count, correct=right[rung], share=share))
    return tuple(shares)


def _speedups(samples: Sequence[ScoredSubmission]) -> tuple[SpeedupBin, ...]:
    counts = [0] * (len(SPEEDUP_EDGES) + 1)
    for sample in samples:
        speedup = _speedup_low(sample.score)
        if speedup is not None and speedup >= 0.0:
            counts[bisect_right(SPEEDUP_EDGES, speedup)] += 1
    bins: list[SpeedupBin] = []
    for low, high, count in zip((0.0, *SPEEDUP_EDGES), (*SPEEDUP_EDGES, None), counts, strict=True):
        bins.append(SpeedupBin(low=low, high=high, count=count))
    return tuple(bins)


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
    several = flat = flat_right = 0
    for scores in groups.values():
        if len(scores) > 1:
            several += 1
            if len(set(map(_signal, scores))) == 1:
                flat += 1
                flat_right += scores[0].correct
    return PromptGroups(
        groups=several, flat=flat, flat_wrong=flat - flat_right, flat_right=flat_right
    )


def _signal(score: Score) -> tuple[object, ...]:
    """Returns the part of a score visible to a reward."""
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

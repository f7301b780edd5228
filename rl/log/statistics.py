"""`rl stats`: what a database holds for training, as values."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from kernelwright.policies.base import Value
from kernelwright.rl.credit.formula import Formula
from kernelwright.rl.credit.scoring import on_gpu
from kernelwright.rl.log.dataset import Log, Sample, SampleRequirements, load_log, revision_of
from kernelwright.rl.log.refusals import RefusalCount
from kernelwright.store.database import Store
from kernelwright.store.models import State
from kernelwright.store.records import CandidateFilter, Turn


class DepthStats(Value):
    """Turns that far from their draft."""

    depth: int
    turns: int
    compiled: float
    correct: float
    reward: float
    deviation: float
    tokens: float


class PolicyStats(Value):
    """The turns that one revision of a policy has left in a log."""

    policy: str
    revision: str
    turns: int
    exact: int
    correct: float
    first: float
    """Seconds since 1970."""
    last: float


class RewardPartStats(Value):
    """One part of the reward over a log."""

    part: str
    mean: float
    deviation: float
    nonzero: float


class RewardStats(Value):
    """The rewards of a log under one formula."""

    formula: str
    mean: float
    deviation: float
    between: float
    """Variance of the groups' means."""
    within: float
    """Mean variance inside groups: what an advantage lives on."""
    parts: tuple[RewardPartStats, ...]


class LogStats(Value):
    """The contents of a log, and how much of it can be trained on."""

    where: str
    turns: int
    judged: int
    trajectories: int
    problems: int
    on_gpu: int
    groups: int
    sizes: dict[int, int]
    """The number of groups by their size."""
    zero_variance: int
    trainable: int
    """Turns with a gradient for exact GRPO."""
    refused: tuple[RefusalCount, ...]
    depths: tuple[DepthStats, ...]
    faults: dict[str, int]
    policies: tuple[PolicyStats, ...]
    rewards: RewardStats | None
    distinct: float
    """Share of candidates whose program no other has."""


def stats_of(store: Store, formula: Formula, chosen: CandidateFilter | None = None) -> LogStats:
    """One reading for the figures of the log, one for what exact GRPO may use."""
    tally = _Tally()
    for turn in store.samples((chosen or CandidateFilter()).with_(state=State.JUDGED)):
        tally.add(turn)
    log = load_log(store, SampleRequirements(formula=formula), chosen)
    everything = load_log(store, SampleRequirements(formula=formula, exact=False), chosen)
    sizes = Counter(Counter(sample.group for sample in log.all_scored).values())
    return LogStats(
        where=store.where, turns=log.turns, judged=tally.turns, trajectories=len(tally.trajectories),
        problems=len(tally.problems),
        on_gpu=tally.on_gpu, groups=log.groups, sizes=dict(sorted(sizes.items())), zero_variance=log.zero_variance,
        trainable=len(log.samples), refused=log.refused, depths=_depths(everything.all_scored),
        faults=dict(tally.faults.most_common()),
        policies=tally.policies(), rewards=reward_stats(formula, everything), distinct=tally.distinct,
    )  # fmt: skip


class _Tally:
    """Counts turn by turn, so that a log of any size fits."""

    def __init__(self) -> None:
        self.turns = self.on_gpu = 0
        self.trajectories: set[int] = set()
        self.problems: set[str] = set()
        self.faults: Counter[str] = Counter()
        self._sources: Counter[str] = Counter()
        self._policies: dict[tuple[str, str], list[tuple[bool, bool, float]]] = defaultdict(list)

    def add(self, turn: Turn) -> None:
        """Counts one turn."""
        assert turn.report is not None
        self.turns += 1
        self.on_gpu += on_gpu(turn.report)
        self.trajectories.add(turn.trajectory_id)
        self.problems.add(turn.problem_hash)
        failure = turn.report.failure
        name = (
            "correct"
            if turn.report.correct
            else failure.fault.value
            if failure
            else "not judged for correctness"
        )
        self.faults[name] += 1
        if turn.source_hash:
            self._sources[turn.source_hash] += 1
        if turn.completion is not None:
            key = (turn.completion.policy, revision_of(turn))
            self._policies[key].append((turn.completion.exact, turn.report.correct, turn.created))

    @property
    def distinct(self) -> float:
        """Distinct texts of candidates, as a share of all texts."""
        total = sum(self._sources.values())
        return len(self._sources) / total if total else 0.0

    def policies(self) -> tuple[PolicyStats, ...]:
        """Returns the figures of each policy and revision, in the order of their first turns."""
        found = [
            PolicyStats(
                policy=policy, revision=revision, turns=len(rows), exact=sum(exact for exact, _, _ in rows),
                correct=_mean([correct for _, correct, _ in rows]), first=min(t for _, _, t in rows),
                last=max(t for _, _, t in rows),
            )
            for (policy, revision), rows in self._policies.items()
        ]  # fmt: skip
        return tuple(sorted(found, key=lambda row: row.first))


def _depths(samples: Sequence[Sample]) -> tuple[DepthStats, ...]:
    depths: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        depths[sample.depth].append(sample)
    return tuple(
        DepthStats(
            depth=depth, turns=len(rows), compiled=_mean([s.compiled for s in rows]),
            correct=_mean([s.correct for s in rows]),
            reward=_mean([s.reward for s in rows]), deviation=_deviation([s.reward for s in rows]),
            tokens=_mean([len(s.completion_ids) for s in rows]),
        )
        for depth, rows in sorted(depths.items())
    )  # fmt: skip


def reward_stats(formula: Formula, log: Log) -> RewardStats | None:
    """Returns the statistics of rewards; None where nothing was scored."""
    samples = log.all_scored
    if not samples:
        return None
    groups: dict[object, list[float]] = defaultdict(list)
    for sample in samples:
        groups[sample.group].append(sample.reward)
    several = [rewards for rewards in groups.values() if len(rewards) > 1]
    return RewardStats(
        formula=formula.label,
        mean=_mean([s.reward for s in samples]),
        deviation=_deviation([s.reward for s in samples]),
        between=statistics.pvariance([_mean(rewards) for rewards in groups.values()]),
        within=_mean([statistics.pvariance(rewards) for rewards in several]),
        parts=tuple(
            RewardPartStats(
                part=part,
                mean=_mean([s.parts[part] for s in samples]),
                deviation=_deviation([s.parts[part] for s in samples]),
                nonzero=_mean([s.parts[part] != 0 for s in samples]),
            )
            for part in samples[0].parts
        ),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _deviation(values: Sequence[float]) -> float:
    return statistics.pstdev(values) if values else 0.0

"""`rl stats`: the contents of a database relevant to training, as values."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from kernelwright.agent.rewards.formula import Formula
from kernelwright.agent.rewards.scoring import on_gpu
from kernelwright.policies.base import Value
from kernelwright.rl.log.dataset import Log, Sample, SampleRequirements, load_log, revision_of
from kernelwright.rl.log.refusals import RefusalCount
from kernelwright.store.database import Store
from kernelwright.store.models import CandidateState
from kernelwright.store.records import CandidateFilter, Turn


class DepthStats(Value):
    """Figures of the turns at the same distance from their draft."""

    depth: int
    turns: int
    compiled: float
    correct: float
    reward: float
    deviation: float
    tokens: float


class PolicyStats(Value):
    """Figures of the turns of a policy's revision."""

    policy: str
    revision: str
    turns: int
    exact: int
    correct: float
    first: float
    """Time of the first turn, in seconds since 1970."""
    last: float


class RewardPartStats(Value):
    """Statistics of a reward part over a log."""

    part: str
    mean: float
    deviation: float
    nonzero: float


class RewardStats(Value):
    """The rewards of a log under a formula."""

    formula: str
    mean: float
    deviation: float
    between: float
    """Variance of the groups' means."""
    within: float
    """Mean variance inside groups, which gives advantages their size."""
    parts: tuple[RewardPartStats, ...]


class LogStats(Value):
    """The contents of a log, and the trainable part."""

    where: str
    turns: int
    judged: int
    trajectories: int
    problems: int
    on_gpu: int
    groups: int
    sizes: dict[int, int]
    """Number of groups by their size."""
    zero_variance: int
    trainable: int
    """Number of turns with a gradient for exact GRPO."""
    refused: tuple[RefusalCount, ...]
    depths: tuple[DepthStats, ...]
    faults: dict[str, int]
    policies: tuple[PolicyStats, ...]
    rewards: RewardStats | None
    distinct: float
    """Number of distinct programs as a share of all candidates."""


def stats_of(store: Store, formula: Formula, chosen: CandidateFilter | None = None) -> LogStats:
    """Returns the statistics of a log, from a reading of all turns and a reading of the turns
    usable by exact GRPO.
    """
    tally = _Tally()
    for turn in store.samples((chosen or CandidateFilter()).with_(state=CandidateState.JUDGED)):
        tally.add(turn)
    log = load_log(store, SampleRequirements(formula=formula), chosen)
    everything = load_log(store, SampleRequirements(formula=formula, exact=False), chosen)
    # Number of samples of each group, then number of groups of each size.
    sizes = Counter(Counter(sample.group for sample in log.all_scored).values())
    return LogStats(
        where=store.where,
        turns=log.turns,
        judged=tally.turns,
        trajectories=len(tally.trajectories),
        problems=len(tally.problems),
        on_gpu=tally.on_gpu,
        groups=log.groups,
        sizes=dict(sorted(sizes.items())),
        zero_variance=log.zero_variance,
        trainable=len(log.samples),
        refused=log.refused,
        depths=_depths(everything.all_scored),
        faults=dict(tally.faults.most_common()),
        policies=tally.policies(),
        rewards=reward_stats(formula, everything),
        distinct=tally.distinct,
    )


class _Tally:
    """Counts turn by turn, so a log of any size fits in memory."""

    def __init__(self) -> None:
        self.turns = self.on_gpu = 0
        self.trajectories: set[int] = set()
        self.problems: set[str] = set()
        self.faults: Counter[str] = Counter()
        self._sources: Counter[str] = Counter()
        self._policies: dict[tuple[str, str], list[tuple[bool, bool, float]]] = defaultdict(list)

    def add(self, turn: Turn) -> None:
        """Counts a judged turn."""
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
        """Number of distinct candidate texts as a share of all texts."""
        total = sum(self._sources.values())
        return len(self._sources) / total if total else 0.0

    def policies(self) -> tuple[PolicyStats, ...]:
        """Returns the figures of each policy and revision, in the order of their first turns."""
        statistics_of_policies = []
        for (policy, revision), rows in self._policies.items():
            times = [created for _, _, created in rows]
            statistics_of_policies.append(
                PolicyStats(
                    policy=policy,
                    revision=revision,
                    turns=len(rows),
                    exact=sum(exact for exact, _, _ in rows),
                    correct=_mean([correct for _, correct, _ in rows]),
                    first=min(times),
                    last=max(times),
                )
            )
        return tuple(sorted(statistics_of_policies, key=lambda row: row.first))


def _depths(samples: Sequence[Sample]) -> tuple[DepthStats, ...]:
    depths: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        depths[sample.depth].append(sample)
    return tuple(_depth_stats(depth, rows) for depth, rows in sorted(depths.items()))


def _depth_stats(depth: int, samples: Sequence[Sample]) -> DepthStats:
    rewards = [sample.reward for sample in samples]
    return DepthStats(
        depth=depth,
        turns=len(samples),
        compiled=_mean([sample.compiled for sample in samples]),
        correct=_mean([sample.correct for sample in samples]),
        reward=_mean(rewards),
        deviation=_deviation(rewards),
        tokens=_mean([len(sample.completion_ids) for sample in samples]),
    )


def reward_stats(formula: Formula, log: Log) -> RewardStats | None:
    """Returns the statistics of rewards; None without scored samples."""
    samples = log.all_scored
    if not samples:
        return None
    groups: dict[object, list[float]] = defaultdict(list)
    for sample in samples:
        groups[sample.group].append(sample.reward)
    rewards = [sample.reward for sample in samples]
    means = [_mean(group) for group in groups.values()]
    variances = [statistics.pvariance(group) for group in groups.values() if len(group) > 1]
    return RewardStats(
        formula=formula.label,
        mean=_mean(rewards),
        deviation=_deviation(rewards),
        between=statistics.pvariance(means),
        within=_mean(variances),
        parts=tuple(_part_stats(part, samples) for part in samples[0].parts),
    )


def _part_stats(part: str, samples: Sequence[Sample]) -> RewardPartStats:
    values = [sample.parts[part] for sample in samples]
    return RewardPartStats(
        part=part,
        mean=_mean(values),
        deviation=_deviation(values),
        nonzero=_mean([value != 0 for value in values]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _deviation(values: Sequence[float]) -> float:
    return statistics.pstdev(values) if values else 0.0

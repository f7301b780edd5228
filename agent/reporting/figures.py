"""Figures over the samples of a run: pure functions. A problem that was never attempted counts as failed.

fast_p and speedups count only what was judged on a GPU. Each problem weighs the same, however many samples it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kernelwright.agent.reporting.samples import Cost, ReportedSample
from kernelwright.policies.base import Value

if TYPE_CHECKING:
    import numpy as np

NOT_TIMED_MESSAGE = (
    "nothing was timed: every sample was judged on a CPU; --device cuda, on a machine "
    "with a GPU, measures speed"
)
"""The reason why a run has no fast_p and no speedup."""
FAST_P_THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The values p of fast_p (Ouyang et al. 2025, arXiv:2502.10517): strictly faster than p times eager PyTorch."""
PASS_AT_K_VALUES = (1, 2, 4, 5, 8, 10, 16, 32, 64, 100)
BOOTSTRAP_RESAMPLES = 2000
BOOTSTRAP_SEED = 20251121

Attempts = Mapping[str, Sequence[ReportedSample]]
"""Every problem of the suite by name, with its samples; an empty list where there are none."""


class Estimate(Value):
    """A figure and its 95 % interval, bootstrapped over problems."""

    value: float | None
    low: float | None = None
    high: float | None = None
    problems: int = 0
    """Problems that the figure rests on."""


class Figures(Value):
    """The figures of a set of samples over problems. Shares are of the problems that can be judged, from 0 to 1."""

    problems: int
    attempted: int
    samples: int
    unfinished: int
    compiled: Estimate
    correct: Estimate
    """Mean over problems of the share of its samples that are correct: pass@1."""
    solved_by_compiler: int
    """Samples among `correct` whose first correct candidate was the compiler's draft and not the policy's."""
    correct_on_cpu_only: int
    """Problems whose correct samples were judged on a CPU only: they enter no speed figure."""
    degenerate: int
    """Problems that cannot tell a right answer from some wrong one."""
    unusable: tuple[str, ...] = ()
    """Problems that cannot be judged (the reference fails, or is random): they are in no share."""
    unusable_because: dict[str, str] = {}
    """The reason why each of them cannot be judged."""
    correct_without_degenerate: Estimate
    not_timed: str = ""
    """The reason why there is no speed, and so no fast_p; empty where a GPU judged, or would have."""
    fast: dict[float, Estimate]
    """fast_p of one sample, by p; empty where nothing was timed."""
    fast_best: dict[float, Estimate]
    """fast_p of the best of a problem's samples."""
    pass_at: dict[int, Estimate]
    median_speedup: Estimate
    """The median over problems of the fastest correct sample's speedup."""
    mean_speedup: Estimate
    """Geometric mean of the same."""
    by_algebra: int = 0
    """Problems with a correct sample that takes operations away by exact algebra."""
    mean_speedup_of_same_work: Estimate
    """Geometric mean without these samples and without degenerate problems."""
    cost: Cost

    @property
    def nothing_judged(self) -> bool:
        """Whether no problem of the suite can be judged, so that there is no share."""
        return bool(self.unusable) and len(self.unusable) == self.problems


def by_problem(
    samples: Iterable[ReportedSample], problems: Iterable[str] = ()
) -> dict[str, list[ReportedSample]]:
    """`problems`: the whole suite, so that those never attempted are there too."""
    found: dict[str, list[ReportedSample]] = {name: [] for name in problems}
    for sample in samples:
        found.setdefault(sample.problem, []).append(sample)
    return found


def compute_figures(attempts: Attempts, seed: int = BOOTSTRAP_SEED) -> Figures:
    """Computes the figures of samples by problem; `seed` draws the resamples of the intervals."""
    samples = [sample for own in attempts.values() for sample in own]
    every, attempts = attempts, judged_attempts(attempts)
    unusable = {name: _why_unjudgeable(own) for name, own in every.items() if name not in attempts}
    thresholds = () if is_untimed(attempts) else FAST_P_THRESHOLDS
    sound: Attempts = {
        name: own for name, own in attempts.items() if not any(s.degenerate for s in own)
    }
    return Figures(
        problems=len(every),
        attempted=sum(bool(own) for own in every.values()),
        samples=len(samples),
        unfinished=sum(not sample.finished for sample in samples),
        compiled=mean_rate(attempts, lambda s: s.compiled, seed),
        correct=mean_rate(attempts, lambda s: s.correct, seed),
        solved_by_compiler=sum(
            sample.solved_by is not None and sample.solved_by.is_draft for sample in samples
        ),
        correct_on_cpu_only=sum(_on_cpu_only(own) for own in attempts.values()),
        degenerate=len(attempts) - len(sound),
        unusable=tuple(unusable),
        unusable_because=unusable,
        correct_without_degenerate=mean_rate(sound, lambda s: s.correct, seed),
        not_timed=NOT_TIMED_MESSAGE if is_untimed(attempts) else "",
        fast={p: mean_rate(attempts, is_faster_than(p), seed) for p in thresholds},
        fast_best={p: _best_rate(attempts, is_faster_than(p), seed) for p in thresholds},
        pass_at=pass_at_k(attempts, seed=seed),
        median_speedup=_estimate(best_speedups(attempts), _median, seed),
        mean_speedup=_estimate(best_speedups(attempts), _geometric_mean, seed),
        by_algebra=sum(
            any(s.algebra and s.timed is not None for s in own) for own in attempts.values()
        ),
        mean_speedup_of_same_work=_estimate(
            best_speedups(_same_work(sound)), _geometric_mean, seed
        ),
        cost=total_cost(samples),
    )


def judged_attempts(attempts: Attempts) -> Attempts:
    """The problems that can be judged, those never attempted among them, without samples that ended because their
    problem could not be.

    A problem of which one sample could not be judged is left out, unless another sample is correct.
    """
    return {
        name: [sample for sample in own if not sample.unjudgeable]
        for name, own in attempts.items()
        if not any(sample.unjudgeable for sample in own) or any(sample.correct for sample in own)
    }


def _why_unjudgeable(own: Sequence[ReportedSample]) -> str:
    return next((sample.stop_message for sample in own if sample.unjudgeable), "")


def _same_work(attempts: Attempts) -> Attempts:
    """Returns the samples without those that take operations away by exact algebra."""
    return {name: [s for s in own if not s.algebra] for name, own in attempts.items()}


def is_untimed(attempts: Attempts) -> bool:
    """Whether there are samples and none of them had a GPU. A run with a GPU on which nothing is right was timed: its
    fast_p is 0.
    """
    samples = [sample for own in attempts.values() for sample in own]
    return bool(samples) and all(sample.without_gpu for sample in samples)


def is_faster_than(p: float) -> Callable[[ReportedSample], bool]:
    """Correct, measured on a GPU, and strictly faster than p times the reference."""
    return lambda sample: sample.timed is not None and sample.timed > p


def mean_rate(
    attempts: Attempts, holds: Callable[[ReportedSample], bool], seed: int = BOOTSTRAP_SEED
) -> Estimate:
    """Mean over problems of the share of its samples for which it holds."""
    return _estimate(shares_by_problem(attempts, holds), _mean, seed)


def shares_by_problem(attempts: Attempts, holds: Callable[[ReportedSample], bool]) -> list[float]:
    """Returns for each problem the share of its samples for which something holds."""
    return [sum(map(holds, own)) / len(own) if own else 0.0 for own in attempts.values()]


def _best_rate(attempts: Attempts, holds: Callable[[ReportedSample], bool], seed: int) -> Estimate:
    return _estimate([float(any(map(holds, own))) for own in attempts.values()], _mean, seed)


def best_speedups(attempts: Attempts) -> list[float]:
    """Returns each problem's best speedup, where there is one."""
    best = [
        max((s.timed for s in own if s.timed is not None), default=None)
        for own in attempts.values()
    ]
    return [speedup for speedup in best if speedup is not None and speedup > 0]


def _on_cpu_only(own: Sequence[ReportedSample]) -> bool:
    right = [sample for sample in own if sample.correct]
    return bool(right) and not any(sample.on_gpu for sample in right)


def pass_at(n: int, c: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k), unbiased (Chen et al. 2021, arXiv:2107.03374). Needs k <= n."""
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {c} correct in {n} is not defined")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_at_k(
    attempts: Attempts, ks: Iterable[int] = PASS_AT_K_VALUES, seed: int = BOOTSTRAP_SEED
) -> dict[int, Estimate]:
    """Returns pass@k for each k up to the fewest samples that an attempted problem has; those never attempted are 0."""
    fewest = min((len(own) for own in attempts.values() if own), default=0)
    return {
        k: _estimate([_pass_of(own, k) for own in attempts.values()], _mean, seed)
        for k in ks
        if k <= fewest
    }


def _pass_of(own: Sequence[ReportedSample], k: int) -> float:
    return pass_at(len(own), sum(sample.correct for sample in own), k) if own else 0.0


def total_cost(samples: Iterable[ReportedSample]) -> Cost:
    """Adds what samples have cost."""
    total = Cost()
    for sample in samples:
        total = total.plus(sample.cost)
    return total


# ---------------------------------------------------------------- intervals
def _mean(rows: np.ndarray) -> np.ndarray:
    return rows.mean(axis=-1)


def _median(rows: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.median(rows, axis=-1)


def _geometric_mean(rows: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.exp(np.log(rows).mean(axis=-1))


def _estimate(
    values: Sequence[float], statistic: Callable[[np.ndarray], np.ndarray], seed: int
) -> Estimate:
    """Percentile bootstrap: problems are drawn again with replacement.

    With fewer than two problems there is no interval.
    """
    import numpy as np

    if not values:
        return Estimate(value=None)
    rows = np.asarray(values, dtype=float)
    if len(values) < 2:
        return Estimate(value=float(statistic(rows)), problems=1)
    drawn = np.random.default_rng(seed).integers(
        0, len(rows), size=(BOOTSTRAP_RESAMPLES, len(rows))
    )
    low, high = np.quantile(statistic(rows[drawn]), [0.025, 0.975])
    return Estimate(
        value=float(statistic(rows)), low=float(low), high=float(high), problems=len(rows)
    )

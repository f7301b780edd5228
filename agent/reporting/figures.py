"""Figures over the samples of a run: pure functions. A problem that was never attempted counts as
failed.

fast_p and speedups count only samples judged on a GPU. Each problem has the same weight, however
many samples it has.

Example: problem a with samples correct, incorrect and problem b with one incorrect sample give
pass@1 = (1/2 + 0) / 2 = 25 %.
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
"""Reason why a run has no fast_p and no speedup."""
FAST_P_THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The values p of fast_p (Ouyang et al. 2025, arXiv:2502.10517): strictly faster than p times
eager PyTorch.
"""
PASS_AT_K_VALUES = (1, 2, 4, 5, 8, 10, 16, 32, 64, 100)
"""Values of k for pass@k."""
BOOTSTRAP_RESAMPLES = 2000
"""Number of bootstrap resamples behind an interval."""
BOOTSTRAP_SEED = 20251121
"""Seed of the resamples: equal samples give equal intervals."""

Attempts = Mapping[str, Sequence[ReportedSample]]
"""Every problem of the suite by name, with its samples; an empty list if it was never attempted."""


class Estimate(Value):
    """A figure and its 95 % interval, bootstrapped over problems."""

    value: float | None
    low: float | None = None
    high: float | None = None
    problems: int = 0
    """Number of problems behind the figure."""


class Figures(Value):
    """The figures of a set of samples over problems. Shares are of the problems that can be
    judged, from 0 to 1.
    """

    problems: int
    attempted: int
    samples: int
    unfinished: int
    compiled: Estimate
    correct: Estimate
    """pass@1: mean over problems of the share of correct samples."""
    solved_by_compiler: int
    """Samples among `correct` whose first correct candidate was the compiler's draft and not the
    policy's.
    """
    correct_on_cpu_only: int
    """Problems whose correct samples were judged on a CPU only; they enter no speed figure."""
    degenerate: int
    """Problems whose checks accept some wrong output."""
    unusable: tuple[str, ...] = ()
    """Problems that cannot be judged (the reference fails, or is random); they are in no share."""
    unusable_because: dict[str, str] = {}
    """Reason of each unusable problem."""
    correct_without_degenerate: Estimate
    not_timed: str = ""
    """Reason for figures without speeds and without fast_p; empty if a GPU judged, or would have.
    """
    fast: dict[float, Estimate]
    """fast_p of a single sample, by p; empty if nothing was timed."""
    fast_best: dict[float, Estimate]
    """fast_p of the best of a problem's samples."""
    pass_at: dict[int, Estimate]
    median_speedup: Estimate
    """Median over problems of the fastest correct sample's speedup."""
    mean_speedup: Estimate
    """Geometric mean over problems of the fastest correct sample's speedup."""
    by_algebra: int = 0
    """Problems with a correct sample that saves operations by exact algebra."""
    mean_speedup_of_same_work: Estimate
    """Geometric mean of speedups without samples by algebra and without degenerate problems."""
    cost: Cost

    @property
    def nothing_judged(self) -> bool:
        """Whether no problem of the suite can be judged, so there is no share."""
        return bool(self.unusable) and len(self.unusable) == self.problems


def by_problem(
    samples: Iterable[ReportedSample], problems: Iterable[str] = ()
) -> dict[str, list[ReportedSample]]:
    """Groups samples by problem. `problems`: the whole suite, so problems without attempts are
    included.
    """
    grouped: dict[str, list[ReportedSample]] = {name: [] for name in problems}
    for sample in samples:
        grouped.setdefault(sample.problem, []).append(sample)
    return grouped


def compute_figures(attempts: Attempts, seed: int = BOOTSTRAP_SEED) -> Figures:
    """Computes the figures of samples by problem; `seed` draws the resamples of the intervals."""
    samples = _all_samples(attempts)
    unfinished = solved_by_compiler = 0
    for sample in samples:
        unfinished += not sample.finished
        solved_by_compiler += sample.solved_by is not None and sample.solved_by.is_draft
    judged = judged_attempts(attempts)
    unusable: dict[str, str] = {}
    for name, problem_samples in attempts.items():
        if name not in judged:
            unusable[name] = _why_unjudgeable(problem_samples)
    sound: dict[str, Sequence[ReportedSample]] = {}
    correct_on_cpu_only = by_algebra = 0
    for name, problem_samples in judged.items():
        correct_on_cpu_only += _on_cpu_only(problem_samples)
        by_algebra += any(s.algebra and s.timed is not None for s in problem_samples)
        if not any(s.degenerate for s in problem_samples):
            sound[name] = problem_samples
    fast: dict[float, Estimate] = {}
    fast_best: dict[float, Estimate] = {}
    for p in () if is_untimed(judged) else FAST_P_THRESHOLDS:
        fast[p] = mean_rate(judged, is_faster_than(p), seed)
        fast_best[p] = _best_rate(judged, is_faster_than(p), seed)
    return Figures(
        problems=len(attempts),
        attempted=sum(map(bool, attempts.values())),
        samples=len(samples),
        unfinished=unfinished,
        compiled=mean_rate(judged, lambda s: s.compiled, seed),
        correct=mean_rate(judged, lambda s: s.correct, seed),
        solved_by_compiler=solved_by_compiler,
        correct_on_cpu_only=correct_on_cpu_only,
        degenerate=len(judged) - len(sound),
        unusable=tuple(unusable),
        unusable_because=unusable,
        correct_without_degenerate=mean_rate(sound, lambda s: s.correct, seed),
        not_timed=NOT_TIMED_MESSAGE if is_untimed(judged) else "",
        fast=fast,
        fast_best=fast_best,
        pass_at=pass_at_k(judged, seed=seed),
        median_speedup=_estimate(best_speedups(judged), _median, seed),
        mean_speedup=_estimate(best_speedups(judged), _geometric_mean, seed),
        by_algebra=by_algebra,
        mean_speedup_of_same_work=_estimate(
            best_speedups(_same_work(sound)), _geometric_mean, seed
        ),
        cost=total_cost(samples),
    )


def _all_samples(attempts: Attempts) -> list[ReportedSample]:
    samples: list[ReportedSample] = []
    for problem_samples in attempts.values():
        samples += problem_samples
    return samples


def judged_attempts(attempts: Attempts) -> Attempts:
    """Returns the problems that can be judged, also those without attempts, without samples that
    ended because their problem could not be judged.

    A problem with a sample that could not be judged is omitted, unless another sample is correct.
    """
    judged: dict[str, list[ReportedSample]] = {}
    for name, problem_samples in attempts.items():
        usable = [sample for sample in problem_samples if not sample.unjudgeable]
        all_usable = len(usable) == len(problem_samples)
        if all_usable or any(sample.correct for sample in problem_samples):
            judged[name] = usable
    return judged


def _why_unjudgeable(problem_samples: Sequence[ReportedSample]) -> str:
    return next((sample.stop_message for sample in problem_samples if sample.unjudgeable), "")


def _same_work(attempts: Attempts) -> Attempts:
    """Returns the samples without those that save operations by exact algebra."""
    same_work: dict[str, list[ReportedSample]] = {}
    for name, problem_samples in attempts.items():
        same_work[name] = [sample for sample in problem_samples if not sample.algebra]
    return same_work


def is_untimed(attempts: Attempts) -> bool:
    """Returns whether there are samples and none of them had a GPU. A run on a GPU without a
    correct sample was timed: its fast_p is 0.
    """
    samples = _all_samples(attempts)
    return bool(samples) and all(sample.without_gpu for sample in samples)


def is_faster_than(p: float) -> Callable[[ReportedSample], bool]:
    """Returns a test of a sample: correct, measured on a GPU, and strictly faster than p times
    the reference.
    """
    return lambda sample: sample.timed is not None and sample.timed > p


def mean_rate(
    attempts: Attempts, holds: Callable[[ReportedSample], bool], seed: int = BOOTSTRAP_SEED
) -> Estimate:
    """Estimates the mean over problems of the share of samples for which a condition holds."""
    return _estimate(shares_by_problem(attempts, holds), _mean, seed)


def shares_by_problem(attempts: Attempts, holds: Callable[[ReportedSample], bool]) -> list[float]:
    """Returns for each problem the share of its samples for which a condition holds."""
    return [
        sum(map(holds, problem_samples)) / len(problem_samples) if problem_samples else 0.0
        for problem_samples in attempts.values()
    ]


def _best_rate(attempts: Attempts, holds: Callable[[ReportedSample], bool], seed: int) -> Estimate:
    return _estimate(
        [float(any(map(holds, problem_samples))) for problem_samples in attempts.values()],
        _mean,
        seed,
    )


def best_speedups(attempts: Attempts) -> list[float]:
    """Returns each problem's best speedup; problems without a speedup are omitted."""
    best = []
    for problem_samples in attempts.values():
        speedups = [sample.timed for sample in problem_samples if sample.timed is not None]
        if speedups and max(speedups) > 0:
            best.append(max(speedups))
    return best


def _on_cpu_only(problem_samples: Sequence[ReportedSample]) -> bool:
    right = [sample for sample in problem_samples if sample.correct]
    return bool(right) and not any(sample.on_gpu for sample in right)


def pass_at(n: int, c: int, k: int) -> float:
    """Returns 1 - C(n-c, k) / C(n, k), the unbiased estimate of pass@k (Chen et al. 2021,
    arXiv:2107.03374). Needs k <= n.
    """
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {c} correct in {n} is not defined")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_at_k(
    attempts: Attempts, ks: Iterable[int] = PASS_AT_K_VALUES, seed: int = BOOTSTRAP_SEED
) -> dict[int, Estimate]:
    """Returns pass@k for each k up to the fewest samples of an attempted problem; problems
    without attempts count as 0.
    """
    # Problems without attempts do not limit k.
    fewest = min(filter(None, map(len, attempts.values())), default=0)
    estimates: dict[int, Estimate] = {}
    for k in ks:
        if k <= fewest:
            rates = [_pass_of(problem_samples, k) for problem_samples in attempts.values()]
            estimates[k] = _estimate(rates, _mean, seed)
    return estimates


def _pass_of(problem_samples: Sequence[ReportedSample], k: int) -> float:
    if not problem_samples:
        return 0.0
    correct = sum(sample.correct for sample in problem_samples)
    return pass_at(len(problem_samples), correct, k)


def total_cost(samples: Iterable[ReportedSample]) -> Cost:
    """Adds up the costs of samples."""
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
    """Estimates a statistic with a percentile bootstrap over problems: problems are drawn again
    with replacement.

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
    # One row of `drawn` is one resample of the problems; the interval is that of its statistics.
    low, high = np.quantile(statistic(rows[drawn]), [0.025, 0.975])
    return Estimate(
        value=float(statistic(rows)), low=float(low), high=float(high), problems=len(rows)
    )

"""Two runs over the same problems: which is better, and may it be chance? Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kernelwright.agent.reporting.figures import (
    BOOTSTRAP_SEED,
    Attempts,
    is_faster_than,
    is_untimed,
    judged_attempts,
)
from kernelwright.agent.reporting.samples import ReportedSample
from kernelwright.policies.base import Value

PERMUTATION_SAMPLES = 10_000
MAX_EXACT_DIFFERENCES = 16
"""Problems that differ up to which every flip is tried."""


class RunComparison(Value):
    """The first against the second, problem by problem."""

    measure: str
    problems: int
    """Problems that both have attempted."""
    wins: int
    """Number of problems on which the first is better."""
    losses: int
    ties: int
    difference: float | None
    """Mean over problems, first less second; of speedups the mean of the logarithm's."""
    sign_p: float | None
    """Two-sided, exact, ties left out (Dixon and Mood 1946)."""
    permutation_p: float | None
    """Two-sided p-value of a permutation test: signs are flipped at random, or in all ways where few
    problems differ.
    """


def compare_runs(
    first: Attempts, second: Attempts, seed: int = BOOTSTRAP_SEED
) -> list[RunComparison]:
    """Compares two runs by correctness; and, unless nothing of one of them was timed, by being faster than eager and by
    the speedup where both are correct on a GPU. Problems that could not be judged in one of them are left out.
    """
    first, second = judged_attempts(first), judged_attempts(second)
    measures: list[tuple[str, Callable[[Sequence[ReportedSample]], float | None]]] = [
        ("correct", lambda own: _share(own, lambda s: s.correct)),
    ]
    if not is_untimed(first) and not is_untimed(second):
        measures += [
            ("faster than eager", lambda own: _share(own, is_faster_than(1.0))),
            ("speedup", _log_speedup),
        ]
    return [
        compare_paired(name, *_both(first, second, value), seed=seed) for name, value in measures
    ]


def _both(
    first: Attempts, second: Attempts, value: Callable[[Sequence[ReportedSample]], float | None]
) -> tuple[list[float], list[float]]:
    common = [name for name in first if first[name] and second.get(name)]
    pairs = [(value(first[name]), value(second[name])) for name in common]
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    return [one for one, _ in known], [other for _, other in known]


def _share(own: Sequence[ReportedSample], holds: Callable[[ReportedSample], bool]) -> float:
    return sum(map(holds, own)) / len(own)


def _log_speedup(own: Sequence[ReportedSample]) -> float | None:
    best = max((s.timed for s in own if s.timed), default=None)
    return math.log(best) if best else None


def compare_paired(
    measure: str, first: Sequence[float], second: Sequence[float], seed: int = BOOTSTRAP_SEED
) -> RunComparison:
    """Tests whether paired measurements of the same problems differ."""
    differences = [one - other for one, other in zip(first, second, strict=True)]
    moved = [difference for difference in differences if abs(difference) > 1e-12]
    wins = sum(difference > 0 for difference in moved)
    return RunComparison(
        measure=measure,
        problems=len(differences),
        wins=wins,
        losses=len(moved) - wins,
        ties=len(differences) - len(moved),
        difference=sum(differences) / len(differences) if differences else None,
        sign_p=sign_test(wins, len(moved) - wins) if differences else None,
        permutation_p=permutation_test(moved, seed) if differences else None,
    )


def sign_test(wins: int, losses: int) -> float:
    """Returns the two-sided p-value of the exact binomial test."""
    n = wins + losses
    tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1)) / 2**n
    return min(1.0, 2.0 * tail)


def permutation_test(differences: Sequence[float], seed: int = BOOTSTRAP_SEED) -> float:
    """Returns the share of sign flips whose sum is at least as far from 0."""
    import numpy as np

    n = len(differences)
    if n == 0:
        return 1.0
    values = np.asarray(differences, dtype=float)
    if n <= MAX_EXACT_DIFFERENCES:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        extra = 0
    else:
        signs = np.random.default_rng(seed).choice((-1, 1), size=(PERMUTATION_SAMPLES, n))
        extra = 1
    far = int((np.abs(signs @ values) >= abs(values.sum()) - 1e-9).sum())
    return (far + extra) / (len(signs) + extra)

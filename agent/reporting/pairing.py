"""Compares two runs over the same problems with paired tests. Pure functions.

Problems on which both runs agree count as ties and do not enter the tests. Example: of seven
problems the first run solves six and the second none: 6 wins, 0 losses, 1 tie. Sign test: p = 2 *
(1/2)^6 = 0.031. Permutation test: of the 64 sign flips of six equal differences, 2 have a sum as
far from 0, p = 2 / 64 = 0.031.
"""

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
"""Number of random sign changes in a permutation test."""
MAX_EXACT_DIFFERENCES = 16
"""Largest number of differing problems for which all sign flips are tried."""


class RunComparison(Value):
    """The first run against the second, problem by problem."""

    measure: str
    problems: int
    """Problems that both runs have attempted."""
    wins: int
    """Number of problems on which the first is better."""
    losses: int
    ties: int
    difference: float | None
    """Mean over problems, first minus second; for speedups the mean of the logarithm's
    difference.
    """
    sign_p: float | None
    """Two-sided exact p-value of the sign test, without ties (Dixon and Mood 1946)."""
    permutation_p: float | None
    """Two-sided p-value of a permutation test: signs are flipped at random, or in all
    combinations if few problems differ.
    """


def compare_runs(
    first: Attempts, second: Attempts, seed: int = BOOTSTRAP_SEED
) -> list[RunComparison]:
    """Compares two runs by correctness and, if both were timed, by being faster than eager and by
    the speedup on problems that both solve on a GPU. Problems that could not be judged in either
    run are omitted.
    """
    first, second = judged_attempts(first), judged_attempts(second)
    measures: list[tuple[str, Callable[[Sequence[ReportedSample]], float | None]]] = [
        ("correct", lambda samples: _share(samples, lambda s: s.correct)),
    ]
    if not is_untimed(first) and not is_untimed(second):
        measures += [
            ("faster than eager", lambda samples: _share(samples, is_faster_than(1.0))),
            ("speedup", _log_speedup),
        ]
    return [
        compare_paired(name, *_both(first, second, value), seed=seed) for name, value in measures
    ]


def _both(
    first: Attempts, second: Attempts, value: Callable[[Sequence[ReportedSample]], float | None]
) -> tuple[list[float], list[float]]:
    first_values: list[float] = []
    second_values: list[float] = []
    for name in first:
        if first[name] and second.get(name):
            first_value, second_value = value(first[name]), value(second[name])
            if first_value is not None and second_value is not None:
                first_values.append(first_value)
                second_values.append(second_value)
    return first_values, second_values


def _share(samples: Sequence[ReportedSample], holds: Callable[[ReportedSample], bool]) -> float:
    return sum(map(holds, samples)) / len(samples)


def _log_speedup(samples: Sequence[ReportedSample]) -> float | None:
    best = max((s.timed for s in samples if s.timed), default=None)
    return math.log(best) if best else None


def compare_paired(
    measure: str, first: Sequence[float], second: Sequence[float], seed: int = BOOTSTRAP_SEED
) -> RunComparison:
    """Tests whether paired measurements of the same problems differ."""
    differences = [
        first_value - second_value for first_value, second_value in zip(first, second, strict=True)
    ]
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
        # Row i has the signs of the bits of i: all 2^n combinations.
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        extra = 0
    else:
        signs = np.random.default_rng(seed).choice((-1, 1), size=(PERMUTATION_SAMPLES, n))
        extra = 1  # the measured signs themselves, so that p is never 0 (Phipson and Smyth 2010)
    far = int((np.abs(signs @ values) >= abs(values.sum()) - 1e-9).sum())
    return (far + extra) / (len(signs) + extra)

"""Figures of an evaluation: pure functions over rollouts. Every problem of the suite counts,
attempted or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kernelwright.agent.reporting.figures import (
    Estimate,
    Figures,
    by_problem,
    compute_figures,
    mean_rate,
    pass_at_k,
)
from kernelwright.agent.reporting.samples import ReportedSample
from kernelwright.policies.base import Value
from kernelwright.rl.evaluating.rollouts import Rollout, drafts
from kernelwright.rl.evaluating.text_checks import TextCheckFigures, text_check_figures


class SolvedWithinTurns(Value):
    """The shares of problems compiled and solved within a number of turns of each sample."""

    turns: int
    compiled: Estimate
    solved: Estimate
    """Share solved by a single sample: pass@1 for a single turn."""
    at: dict[int, Estimate]
    """The unbiased estimate of pass@k, by k."""


class FamilyMeasures(Value):
    """The figures of the problems of a family."""

    problems: int
    compiled: Estimate
    drafted: Estimate
    """Share correct at the first turn."""
    solved: Estimate
    """Share correct within all turns."""
    any_solved: int
    """Number of problems solved by at least one sample."""


class TokenMeans(Value):
    """Mean numbers of tokens of turns and rollouts."""

    prompt: float
    """Prompt tokens of a turn."""
    completion: float
    """Completion tokens of a turn."""
    a_rollout: float
    a_solved_problem: float | None
    """All tokens of the evaluation divided by the number of solved problems."""


class Evaluation(Value):
    """All figures of a policy on a suite."""

    policy: str
    suite: str
    device: str
    samples: int
    turns: int
    temperature: float | None
    seed: int
    problems: int
    rollouts: int
    unfinished: int
    drafts_compiled: Estimate
    within: tuple[SolvedWithinTurns, ...]
    fast: dict[float, Estimate]
    """fast_p of a sample within all turns; only candidates judged on a GPU count."""
    median_speedup: Estimate
    families: dict[str, FamilyMeasures]
    faults: dict[str, int]
    """Number of drafts by fault; `correct` is an entry."""
    tokens: TokenMeans
    policy_seconds: float
    """Median waiting time of a draft for its answer."""
    light: TextCheckFigures | None


def evaluate_rollouts(
    rollouts: Sequence[Rollout], families: dict[str, str], **facts: object
) -> Evaluation:
    """Returns the figures of rollouts. `families`: family of every problem of the suite.

    `facts`: policy, suite, device, samples, turns, temperature, seed.
    """
    turns = int(str(facts["turns"]))
    whole = _figures(rollouts, families, turns)
    first = drafts(rollouts)
    waits = sorted(turn.policy_seconds for turn in first)
    return Evaluation(
        **facts,  # type: ignore[arg-type]
        problems=len(families),
        rollouts=len(rollouts),
        unfinished=sum(not rollout.finished for rollout in rollouts),
        drafts_compiled=_figures(rollouts, families, 1).compiled,
        within=tuple(_within(rollouts, families, t) for t in _turns_shown(turns)),
        fast=whole.fast,
        median_speedup=whole.median_speedup,
        families=_families(rollouts, families, turns),
        faults=dict(Counter(turn.fault or "correct" for turn in first).most_common()),
        tokens=_tokens(rollouts),
        policy_seconds=waits[len(waits) // 2] if waits else 0.0,
        light=text_check_figures([turn.light for turn in first if turn.light is not None]),
    )


def _turns_shown(turns: int) -> list[int]:
    return sorted({t for t in (1, 2, 3, 4, 6, 8, 12, 16) if t <= turns} | {turns})


def _figures(rollouts: Sequence[Rollout], families: dict[str, str], turns: int) -> Figures:
    return compute_figures(by_problem([rollout.within(turns) for rollout in rollouts], families))


def _within(rollouts: Sequence[Rollout], families: dict[str, str], turns: int) -> SolvedWithinTurns:
    attempts = by_problem([rollout.within(turns) for rollout in rollouts], families)
    return SolvedWithinTurns(
        turns=turns,
        compiled=mean_rate(attempts, lambda s: s.compiled),
        solved=mean_rate(attempts, lambda s: s.correct),
        at=pass_at_k(attempts),
    )


def _families(
    rollouts: Sequence[Rollout], families: dict[str, str], turns: int
) -> dict[str, FamilyMeasures]:
    measures = {}
    for family in sorted(set(families.values())):
        names = [name for name, problem_family in families.items() if problem_family == family]
        of_family = [rollout for rollout in rollouts if rollout.family == family]
        first = by_problem([rollout.within(1) for rollout in of_family], names)
        all_turns = by_problem([rollout.within(turns) for rollout in of_family], names)
        measures[family] = FamilyMeasures(
            problems=len(names),
            compiled=mean_rate(first, lambda sample: sample.compiled),
            drafted=mean_rate(first, lambda sample: sample.correct),
            solved=mean_rate(all_turns, lambda sample: sample.correct),
            any_solved=sum(map(_any_correct, all_turns.values())),
        )
    return measures


def _any_correct(samples: Sequence[ReportedSample]) -> bool:
    return any(sample.correct for sample in samples)


def _tokens(rollouts: Sequence[Rollout]) -> TokenMeans:
    prompt = completion = turns = 0
    solved: set[str] = set()
    for rollout in rollouts:
        for turn in rollout.turns:
            turns += 1
            prompt += turn.prompt_tokens
            completion += turn.completion_tokens
            if turn.correct:
                solved.add(rollout.problem)
    return TokenMeans(
        prompt=prompt / max(1, turns),
        completion=completion / max(1, turns),
        a_rollout=(prompt + completion) / max(1, len(rollouts)),
        a_solved_problem=(prompt + completion) / len(solved) if solved else None,
    )

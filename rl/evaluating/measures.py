"""Figures of an evaluation: pure functions over rollouts. Every problem of the suite counts, attempted or not."""

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
from kernelwright.policies.base import Value
from kernelwright.rl.evaluating.rollouts import Rollout, drafts
from kernelwright.rl.evaluating.text_checks import TextCheckFigures, text_check_figures


class SolvedWithinTurns(Value):
    """The shares of problems that are compiled and solved when each sample has so many turns."""

    turns: int
    compiled: Estimate
    solved: Estimate
    """The share that one sample solves: pass@1 where there is one turn."""
    at: dict[int, Estimate]
    """The unbiased estimate of pass@k, by k."""


class FamilyMeasures(Value):
    """The figures of the problems of one family."""

    problems: int
    compiled: Estimate
    drafted: Estimate
    """Right at the first turn."""
    solved: Estimate
    """Right within all turns."""
    any_solved: int
    """Problems that some sample solved."""


class TokenMeans(Value):
    """Mean numbers of tokens."""

    prompt: float
    """Prompt tokens of a turn."""
    completion: float
    """Completion tokens of a turn."""
    a_rollout: float
    a_solved_problem: float | None
    """All tokens of the evaluation divided by the number of solved problems."""


class Evaluation(Value):
    """Everything that is found of one policy on one suite."""

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
    """fast_p of one sample within all turns; counts only what was judged on a GPU."""
    median_speedup: Estimate
    families: dict[str, FamilyMeasures]
    faults: dict[str, int]
    """Faults of the drafts and how often each came; `correct` is among them."""
    tokens: TokenMeans
    policy_seconds: float
    """Median a draft waits for its answer."""
    light: TextCheckFigures | None


def evaluate_rollouts(
    rollouts: Sequence[Rollout], families: dict[str, str], **facts: object
) -> Evaluation:
    """`families`: every problem of the suite, with its family.

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
    found = {}
    for family in sorted(set(families.values())):
        names = [name for name, own in families.items() if own == family]
        own = [rollout for rollout in rollouts if rollout.family == family]
        first = by_problem([rollout.within(1) for rollout in own], names)
        all_turns = by_problem([rollout.within(turns) for rollout in own], names)
        found[family] = FamilyMeasures(
            problems=len(names),
            compiled=mean_rate(first, lambda s: s.compiled),
            drafted=mean_rate(first, lambda s: s.correct),
            solved=mean_rate(all_turns, lambda s: s.correct),
            any_solved=sum(any(s.correct for s in samples) for samples in all_turns.values()),
        )
    return found


def _tokens(rollouts: Sequence[Rollout]) -> TokenMeans:
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    prompt, completion = (
        sum(t.prompt_tokens for t in turns),
        sum(t.completion_tokens for t in turns),
    )
    solved = {
        rollout.problem for rollout in rollouts if any(turn.correct for turn in rollout.turns)
    }
    return TokenMeans(
        prompt=prompt / max(1, len(turns)),
        completion=completion / max(1, len(turns)),
        a_rollout=(prompt + completion) / max(1, len(rollouts)),
        a_solved_problem=(prompt + completion) / len(solved) if solved else None,
    )

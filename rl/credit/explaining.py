"""Explains one candidate's reward, part by part, in words."""

from __future__ import annotations

from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.rl.credit.formula import Formula
from kernelwright.rl.credit.scoring import reply_of, score
from kernelwright.rl.credit.turn_credit import GAMMA, CreditedTurn, credit_of_turns
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter


class ExplainedPart(Value):
    """One part of a reward, with the reason for its value."""

    part: str
    value: float
    why: str


class ExplainedReward(Value):
    """The reward of one candidate, part by part."""

    candidate_id: int
    problem: str
    depth: int
    policy: str
    formula: str
    verdict: str
    parts: tuple[ExplainedPart, ...]
    total: float
    value: float
    """The turn's return, which includes the rewards of later turns of its lineage."""
    gamma: float
    kept: bool
    """False where the formula rejects the sample."""
    earns: bool
    """False where the problem itself earns nothing."""


def explain_candidate(
    store: Store, candidate_id: int, formula: Formula, gamma: float = GAMMA
) -> ExplainedReward:
    """Raises InputError where it has no verdict; StoreError where it is not there."""
    turn = store.turn(candidate_id)
    report = turn.report
    if report is None:
        raise InputError(
            f"candidate {candidate_id} has no verdict: its run was stopped first, and infrastructure "
            "trouble earns "
            "nothing"
        )
    scored = score(formula, report, reply_of(turn))
    failure = report.failure
    moves = [
        CreditedTurn(
            other.candidate_id,
            other.parent_id,
            score(formula, other.report, reply_of(other)).total,
            "one",
        )
        for other in store.samples(CandidateFilter(trajectory_id=turn.trajectory_id))
        if other.report is not None
    ]
    return ExplainedReward(
        candidate_id=candidate_id,
        problem=turn.problem,
        depth=turn.depth,
        policy=turn.completion.policy if turn.completion else "",
        formula=formula.label,
        verdict="correct"
        if report.correct
        else f"{failure.fault.value}: {failure.message}"
        if failure
        else "not judged",
        parts=tuple(
            ExplainedPart(part=name, value=value, why=scored.words[name])
            for name, value in scored.parts.items()
        ),
        total=scored.total,
        value=credit_of_turns(moves, gamma)[candidate_id].value,
        gamma=gamma,
        kept=scored.kept,
        earns=not report.degenerate,
    )

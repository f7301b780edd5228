"""Explains a candidate's reward part by part, in words."""

from __future__ import annotations

from kernelwright.agent.rewards.formula import Formula
from kernelwright.agent.rewards.scoring import reply_of, score
from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.rl.credit.turn_credit import GAMMA, CreditedTurn, credit_of_turns
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter
from kernelwright.tools.report import Report


class ExplainedPart(Value):
    """A part of a reward, with the reason for its value."""

    part: str
    value: float
    why: str


class ExplainedReward(Value):
    """The reward of a candidate, part by part."""

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
    """False if the formula rejects the sample."""
    earns: bool
    """False if the problem itself earns nothing."""


def explain_candidate(
    store: Store, candidate_id: int, formula: Formula, gamma: float = GAMMA
) -> ExplainedReward:
    """Returns the explained reward of a candidate. Raises InputError without a verdict;
    StoreError for an unknown candidate.
    """
    turn = store.turn(candidate_id)
    report = turn.report
    if report is None:
        raise InputError(
            f"candidate {candidate_id} has no verdict: its run was stopped first, and infrastructure "
            "trouble earns nothing"
        )
    scored = score(formula, report, reply_of(turn))
    parts = [
        ExplainedPart(part=name, value=value, why=scored.words[name])
        for name, value in scored.parts.items()
    ]
    turns = _trajectory(store, turn.trajectory_id, formula)
    return ExplainedReward(
        candidate_id=candidate_id,
        problem=turn.problem,
        depth=turn.depth,
        policy=turn.completion.policy if turn.completion else "",
        formula=formula.label,
        verdict=_verdict_text(report),
        parts=tuple(parts),
        total=scored.total,
        value=credit_of_turns(turns, gamma)[candidate_id].value,
        gamma=gamma,
        kept=scored.kept,
        earns=not report.degenerate,
    )


def _trajectory(store: Store, trajectory_id: int, formula: Formula) -> list[CreditedTurn]:
    """Returns the judged turns of a trajectory with their rewards, in a common group."""
    turns = []
    for turn in store.samples(CandidateFilter(trajectory_id=trajectory_id)):
        if turn.report is not None:
            reward = score(formula, turn.report, reply_of(turn)).total
            turns.append(CreditedTurn(turn.candidate_id, turn.parent_id, reward, trajectory_id))
    return turns


def _verdict_text(report: Report) -> str:
    if report.correct:
        return "correct"
    failure = report.failure
    return f"{failure.fault.value}: {failure.message}" if failure else "not judged"

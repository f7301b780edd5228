"""Writes turns.

Each function runs inside one transaction, and a row is written before the event that the row
announces.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.engine import Connection, Row
from sqlmodel import col

from kernelwright.policies.base import Completion, PaidReply, Request, Usage
from kernelwright.store.beginning import lease_fields
from kernelwright.store.blobs import (
    pack_integers,
    pack_numbers,
    pack_text,
    save_blobs,
    save_chain,
    token_pieces,
)
from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.migrations import CURRENT_VERSION
from kernelwright.store.models import Candidate, CandidateState, Reward, Trajectory, Verdict
from kernelwright.store.records import TurnPosition, dump_report, fingerprint
from kernelwright.store.rows import add_and_read, add_row, existing_row, missing, update_row
from kernelwright.store.search import index_candidate, index_verdict
from kernelwright.store.turns import paid_for_nothing
from kernelwright.tools.problem import source_hash
from kernelwright.tools.report import Report, clean_text

_PARENT_DEPTH = (
    select(col(Candidate.depth))
    .where(col(Candidate.id) == bindparam("parent_id"))
    .scalar_subquery()
)
_LAST_TURN = (
    select(func.max(col(Candidate.turn)))
    .where(col(Candidate.trajectory_id) == col(Trajectory.id))
    .scalar_subquery()
)
# Everything that a draft must know, in a single query: owner, lease, last turn, parent's depth.
_DRAFT_CONTEXT = select(
    col(Trajectory.finished),
    col(Trajectory.owner),
    col(Trajectory.lease),
    _PARENT_DEPTH.label("depth"),
    _LAST_TURN.label("last"),
).where(col(Trajectory.id) == bindparam("id"))
_TURN = select(col(Candidate.id), col(Candidate.state)).where(
    col(Candidate.trajectory_id) == bindparam("trajectory_id"),
    col(Candidate.turn) == bindparam("turn"),
)
_LARGEST_TOKEN_ID = 2**63 - 1
_CANDIDATE_STATE = (
    select(col(Candidate.state), col(Candidate.trajectory_id), col(Trajectory.problem))
    .join(Trajectory, col(Candidate.trajectory_id) == col(Trajectory.id))
    .where(col(Candidate.id) == bindparam("id"))
)


def draft(
    connection: Connection,
    trajectory_id: int,
    request: Request,
    position: TurnPosition,
    *,
    owner: str,
    now: float,
) -> Candidate:
    """Adds a candidate's row before the policy is called.

    An unanswered turn may be drafted again.
    """
    context = _draft_context(connection, trajectory_id, position.parent_id)
    update_row(
        connection,
        Trajectory,
        trajectory_id,
        lease_fields(trajectory_id, context.owner, context.lease, owner, now),
    )
    prompt = [(message.role.value, pack_text(message.content)) for message in request.messages]
    values = {
        "action": position.action,
        "parent_id": position.parent_id,
        "depth": 0 if context.depth is None else context.depth + 1,
        "prompt_version": position.prompt_version,
        "prompt_id": save_chain(connection, prompt),
        "sampling": request.sampling.model_dump(mode="json"),
        "adapter": request.adapter,
        "schema_version": CURRENT_VERSION,
        "created": now,
    }
    next_turn = 0 if context.last is None else context.last + 1
    turn = next_turn if position.turn is None else position.turn
    return _save_draft(connection, trajectory_id, turn, next_turn, values)


def _draft_context(
    connection: Connection, trajectory_id: int, parent_id: int | None
) -> Row[*tuple[Any, ...]]:
    """Returns owner and lease of the trajectory, its last turn, and the depth of the parent (None
    without a parent).
    """
    parameters = {"id": trajectory_id, "parent_id": parent_id}
    row = connection.execute(_DRAFT_CONTEXT, parameters).first()
    if row is None:
        raise missing(Trajectory, trajectory_id)
    if row.finished is not None:
        raise StoreError(
            f"trajectory {trajectory_id} is finished: fork it to go on", StoreTrouble.INVALID
        )
    if parent_id is not None and row.depth is None:
        raise missing(Candidate, parent_id)
    return row


def _save_draft(
    connection: Connection, trajectory_id: int, turn: int, next_turn: int, values: dict[str, Any]
) -> Candidate:
    """Adds a new row, or overwrites the unanswered row of this turn.

    Turns from `following` on have no row yet.
    """
    turn_columns = {"trajectory_id": trajectory_id, "turn": turn}
    # A turn after the last one needs no lookup: the usual case saves a query.
    existing = None if turn >= next_turn else connection.execute(_TURN, turn_columns).first()
    if existing is None:
        return add_and_read(connection, Candidate, values | turn_columns)
    id, state = existing
    if state is not CandidateState.DRAFTING:
        raise StoreError(
            f"turn {turn} of trajectory {trajectory_id} has its answer already",
            StoreTrouble.INVALID,
        )
    update_row(connection, Candidate, id, values)
    return existing_row(connection, Candidate, id)


def complete(
    connection: Connection,
    candidate_id: int,
    completion: Completion,
    source: str | None,
    now: float,
) -> None:
    """Stores the policy's answer with texts and tokens in a single transaction."""
    state, _, problem = _candidate_state(connection, candidate_id)
    if state is not CandidateState.DRAFTING:
        raise StoreError(f"candidate {candidate_id} has its answer already", StoreTrouble.INVALID)
    completion = _without_inconsistent_tokens(completion)
    values = {
        "state": CandidateState.DRAFTED,
        "drafted": now,
        **_answer(completion),
        **_texts(connection, completion, source),
    }
    update_row(connection, Candidate, candidate_id, values)
    index_candidate(connection, candidate_id, problem, completion.text, source)


def _candidate_state(connection: Connection, candidate_id: int) -> tuple[CandidateState, int, str]:
    """Returns the state of a candidate, its trajectory id and its problem."""
    if (row := connection.execute(_CANDIDATE_STATE, {"id": candidate_id}).first()) is None:
        raise missing(Candidate, candidate_id)
    return row[0], row[1], row[2]


def _without_inconsistent_tokens(completion: Completion) -> Completion:
    """Returns the completion without inconsistent token ids and log-probs, which would train
    wrong tokens.

    A paid reply is stored in any case; inconsistent tokens make the reply inexact.
    """
    ids = completion.token_ids if _storable_ids(completion.token_ids) else None
    prompt_ids = completion.prompt_token_ids if _storable_ids(completion.prompt_token_ids) else None
    logprobs = completion.logprobs
    # Training pairs ids with log-probs by position: each id needs exactly one finite number.
    if logprobs is not None and (
        ids is None or len(ids) != len(logprobs) or any(map(math.isnan, logprobs))
    ):
        logprobs = None
    return completion.with_(
        token_ids=ids,
        prompt_token_ids=prompt_ids,
        logprobs=logprobs,
        exact=completion.exact and logprobs is not None and prompt_ids is not None,
    )


def _storable_ids(ids: Sequence[int] | None) -> bool:
    return ids is not None and all(0 <= id <= _LARGEST_TOKEN_ID for id in ids)


def record_paid(connection: Connection, candidate_id: int, replies: Sequence[PaidReply]) -> None:
    """Adds the cost of charged answers without a reply to an unanswered row, and stores the text
    of the last answer.

    The row stays open: the turn can be requested again, and the usage of its answer then includes
    this cost.
    """
    state, _, _ = _candidate_state(connection, candidate_id)
    if state is not CandidateState.DRAFTING:
        raise StoreError(f"candidate {candidate_id} has its answer already", StoreTrouble.INVALID)
    row = existing_row(connection, Candidate, candidate_id)
    usage = paid_for_nothing(row)
    for reply in replies:
        usage = reply.usage if usage is None else usage.plus(reply.usage)
    if usage is not None:
        [reply_id] = save_blobs(connection, [pack_text(replies[-1].text)])
        update_row(
            connection, Candidate, candidate_id, {"reply_id": reply_id, **_usage_columns(usage)}
        )


def _answer(completion: Completion) -> dict[str, Any]:
    return {
        "policy": completion.policy,
        "origin": completion.origin,
        "policy_revision": completion.revision,
        "adapter_revision": completion.adapter_revision,
        "tokenizer_hash": completion.tokenizer_hash,
        "chat_template_hash": completion.chat_template_hash,
        "seed": completion.seed,
        "exact": completion.exact,
        "finish": completion.finish,
        "policy_seconds": completion.latency,
        **_usage_columns(completion.usage),
    }


def _usage_columns(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_prompt_tokens": usage.cached_prompt_tokens,
        "usage_estimated": usage.estimated,
        "dollars": usage.dollars,
    }


def _texts(connection: Connection, completion: Completion, source: str | None) -> dict[str, Any]:
    bodies: dict[str, bytes] = {"reply_id": pack_text(completion.text)}
    if source is not None:
        bodies["source_id"] = pack_text(source)
    if completion.token_ids is not None:
        bodies["completion_tokens_id"] = pack_integers(completion.token_ids)
    if completion.logprobs is not None:
        bodies["logprobs_id"] = pack_numbers(completion.logprobs)
    blob_ids = save_blobs(connection, list(bodies.values()))
    columns: dict[str, Any] = dict(zip(bodies, blob_ids, strict=True))
    columns["source_hash"] = None if source is None else source_hash(source)
    prompt = completion.prompt_token_ids
    columns["prompt_tokens_id"] = (
        None if prompt is None else save_chain(connection, token_pieces(prompt))
    )
    return columns


def judge(
    connection: Connection,
    candidate_id: int,
    report: Report,
    *,
    tool_seconds: float | None,
    gpu_seconds: float | None,
    now: float,
) -> int:
    """Adds a verdict in force and returns its id; earlier verdicts remain."""
    state, trajectory_id, _ = _candidate_state(connection, candidate_id)
    if state is CandidateState.DRAFTING:
        raise StoreError(
            f"candidate {candidate_id} has no answer that could be judged", StoreTrouble.INVALID
        )
    [report_id] = save_blobs(connection, [dump_report(report)])
    values = {
        "candidate_id": candidate_id,
        "created": now,
        "report_id": report_id,
        **_columns(report),
    }
    verdict_id = add_row(connection, Verdict, values)
    changes: dict[str, Any] = {"verdict_id": verdict_id}
    # The times of a turn are those of its first verdict; judging again only replaces the verdict.
    if state is not CandidateState.JUDGED:
        changes |= {
            "state": CandidateState.JUDGED,
            "judged": now,
            "tool_seconds": tool_seconds,
            "gpu_seconds": gpu_seconds,
        }
        update_row(connection, Trajectory, trajectory_id, {"updated": now})
    update_row(connection, Candidate, candidate_id, changes)
    index_verdict(connection, verdict_id, report)
    return verdict_id


def _columns(report: Report) -> dict[str, Any]:
    """Returns the verdict columns used for filtering and sorting."""
    failure, profile = report.failure, report.profile
    # Speedups of incorrect candidates are not listed: a wrong kernel may be arbitrarily fast.
    speeds = profile if profile and report.correct else None
    return {
        "report_version": report.schema_version,
        "rung": report.rung,
        "fault": failure.fault if failure else None,
        "cheat": failure.cheat if failure else None,
        "message": clean_text(failure.message, 400) if failure else "",
        "correct": report.correct,
        "correct_kb": report.correct_kb,
        "judged_on": clean_text(report.judged_on, 100),
        "speedup": _finite(report.speedup),
        "speedup_low": _finite(speeds.speedup_low) if speeds else None,
        "speedup_compiled": _finite(speeds.speedup_compiled) if speeds else None,
        "speed_of_light": _finite(profile.speed_of_light) if profile else None,
        "own_share": _finite(profile.own_share) if profile else None,
        "milliseconds": _finite(profile.candidate.median)
        if profile and profile.candidate
        else None,
        "evaluator": report.environment.evaluator[:80],
        "fingerprint": fingerprint(report.environment),
        "seconds": _finite(report.seconds) or 0.0,
        "cached": report.cached,
    }


def _finite(value: float | None) -> float | None:
    """Returns finite values only: SQLite stores NaN as NULL and sorts infinities as numbers."""
    return value if value is not None and math.isfinite(value) else None


def reward(
    connection: Connection, verdict_id: int, formula: str, parts: Mapping[str, float], now: float
) -> None:
    """Adds the parts of a reward to a verdict."""
    plain = {name: float(value) for name, value in parts.items()}
    values = {"verdict_id": verdict_id, "created": now, "formula": formula, "parts": plain}
    add_row(connection, Reward, values)

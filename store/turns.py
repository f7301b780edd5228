"""Restores turns from rows and their blobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlmodel import Session

from kernelwright.policies.base import Completion, Message, Role, Sampling, Usage
from kernelwright.store.blobs import (
    join_tokens,
    load_blobs,
    load_chains,
    split_into_batches,
    unpack_numbers,
    unpack_text,
)
from kernelwright.store.models import Candidate, Reward
from kernelwright.store.records import Entry, Turn, load_report

Chain = list[tuple[str, bytes]]


class PageTexts(NamedTuple):
    """Texts and tokens referenced by a page of rows."""

    blobs: Mapping[int, bytes]
    chains: Mapping[int, Chain]
    rewards: Mapping[int, Reward]

    def text(self, id: int | None) -> str | None:
        """Returns the text of a blob; None if `id` is None."""
        return None if id is None else unpack_text(self.blobs[id])

    def numbers(self, id: int | None) -> tuple[Any, ...] | None:
        """Returns the numbers of a blob; None if `id` is None."""
        return None if id is None else unpack_numbers(self.blobs[id])

    def messages(self, id: int | None) -> tuple[Message, ...]:
        """Returns the conversation that ends with message `id`, first message first; empty if
        `id` is None.
        """
        chain = [] if id is None else self.chains[id]
        return tuple(Message(role=Role(label), content=unpack_text(body)) for label, body in chain)

    def tokens(self, id: int | None) -> tuple[int, ...] | None:
        """Returns the token ids of a chain; None if `id` is None."""
        return None if id is None else join_tokens(self.chains[id])


def turns(session: Session, entries: Sequence[Entry], formula: str | None = None) -> Iterator[Turn]:
    """Yields turns in the order of `entries`, loaded with four queries in total.

    `formula` selects the rewards; None takes the latest.
    """
    blob_ids: list[int | None] = []
    chain_ids: list[int | None] = []
    for entry in entries:
        row = entry.candidate
        blob_ids += [row.reply_id, row.source_id, row.completion_tokens_id, row.logprobs_id]
        chain_ids += [row.prompt_id, row.prompt_tokens_id]
    verdicts = [entry.verdict for entry in entries if entry.verdict]
    blob_ids += [verdict.report_id for verdict in verdicts]
    connection = session.connection()
    texts = PageTexts(
        blobs=load_blobs(connection, blob_ids),
        chains=load_chains(connection, chain_ids),
        rewards=_rewards(session, [verdict.id for verdict in verdicts], formula),
    )
    return (_turn(entry, texts) for entry in entries)


def _rewards(
    session: Session, verdicts: Sequence[int | None], formula: str | None
) -> dict[int, Reward]:
    """Returns the latest reward of each verdict."""
    table: Any = Reward
    last: dict[int, Reward] = {}
    for part in split_into_batches(verdicts):
        statement = select(Reward).where(table.verdict_id.in_(part)).order_by(table.id)
        if formula is not None:
            statement = statement.where(table.formula == formula)
        # Ordered by id: a later reward of a verdict replaces an earlier one.
        last.update({row.verdict_id: row for row in session.execute(statement).scalars()})
    return last


def _turn(entry: Entry, texts: PageTexts) -> Turn:
    row, trajectory, verdict = entry
    reward = texts.rewards.get(verdict.id) if verdict and verdict.id is not None else None
    copied_fields = (
        "turn",
        "parent_id",
        "depth",
        "action",
        "state",
        "prompt_version",
        "schema_version",
        "adapter",
        "source_hash",
    )
    times = ("tool_seconds", "gpu_seconds", "created", "drafted", "judged")
    return Turn(
        candidate_id=row.id,
        trajectory_id=row.trajectory_id,
        run_id=trajectory.run_id,
        problem=trajectory.problem,
        problem_hash=trajectory.problem_hash,
        suite=trajectory.suite,
        messages=texts.messages(row.prompt_id),
        sampling=Sampling.model_validate(row.sampling),
        completion=_completion(row, texts),
        paid_for_nothing=paid_for_nothing(row),
        source=texts.text(row.source_id),
        report=load_report(texts.blobs[verdict.report_id]) if verdict else None,
        verdict_id=verdict.id if verdict else None,
        fingerprint=verdict.fingerprint if verdict else "",
        rewards=reward.parts if reward else None,
        formula=reward.formula if reward else None,
        **{name: getattr(row, name) for name in (*copied_fields, *times)},
    )


def _completion(row: Candidate, texts: PageTexts) -> Completion | None:
    """Restores the policy's completion; None for an unanswered turn."""
    if row.finish is None:
        return None
    return Completion(
        text=texts.text(row.reply_id) or "",
        finish=row.finish,
        usage=_usage(row),
        policy=row.policy,
        origin=row.origin,
        prompt_token_ids=texts.tokens(row.prompt_tokens_id),
        token_ids=texts.numbers(row.completion_tokens_id),
        logprobs=texts.numbers(row.logprobs_id),
        exact=row.exact,
        revision=row.policy_revision,
        adapter_revision=row.adapter_revision,
        tokenizer_hash=row.tokenizer_hash,
        chat_template_hash=row.chat_template_hash,
        seed=row.seed,
        latency=row.policy_seconds or 0.0,
    )


def paid_for_nothing(row: Candidate) -> Usage | None:
    """Returns the usage of charged answers without a reply for an open turn; None if nothing was
    charged.
    """
    return _usage(row) if row.finish is None and row.prompt_tokens is not None else None


def _usage(row: Candidate) -> Usage:
    return Usage(
        prompt_tokens=row.prompt_tokens or 0,
        completion_tokens=row.completion_tokens or 0,
        cached_prompt_tokens=row.cached_prompt_tokens or 0,
        dollars=row.dollars,
        estimated=row.usage_estimated,
    )

"""The turns of a run in memory, with the fields from which the next turn is decided. The store
holds them all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelwright.policies.authors import author_of, tuned_author
from kernelwright.policies.base import Completion, FinishReason, Origin, Usage, Value
from kernelwright.store.models import Action
from kernelwright.store.records import Turn
from kernelwright.tools.report import Fault, Report, Rung
from kernelwright.tools.source import candidate_hash


class JudgedAttempt(Value):
    """One turn of a run: a candidate and its verdict."""

    candidate_id: int
    turn: int
    action: Action
    parent_id: int | None
    source: str | None = None
    """Source text of the candidate. None: the reply held no code."""
    origin: Origin = Origin.POLICY
    author: str = ""
    """Author of the source text in words, from `policies.authors`."""
    hash: str = ""
    finish: FinishReason | None = None
    usage: Usage | None = None
    report: Report | None = None
    tool_seconds: float = 0.0
    gpu_seconds: float = 0.0
    policy_seconds: float = 0.0
    repeats: int | None = None
    """Number of the earlier turn with the same program."""
    inherited: bool = False
    """Whether the turn belongs to the trajectory from which this trajectory was forked, and was
    paid for there.
    """

    @property
    def correct(self) -> bool:
        """Whether the verdict says that the candidate is correct at every size."""
        return self.report is not None and self.report.correct

    @property
    def unreadable(self) -> bool:
        """Whether the reply has a format error: no code, or a cut before the end of the code."""
        return self.source is None or self.cut_off

    @property
    def cut_off(self) -> bool:
        """Whether the reply reached its limit of tokens before the code ended."""
        # A reply may reach its limit of tokens after the code: only broken code was cut off.
        failure = self.report.failure if self.report else None
        broken = failure is not None and failure.fault in (
            Fault.SYNTAX,
            Fault.NO_CODE,
            Fault.ENTRY_POINT,
        )
        return self.finish is FinishReason.LENGTH and broken

    @property
    def speedup(self) -> float | None:
        """Returns the speedup over eager PyTorch; None if nothing was timed."""
        return self.report.speedup if self.report else None

    @property
    def rank(self) -> tuple[bool, float, int, int]:
        """Sort key: better attempts are larger (correct, then fast, then far up the ladder, then
        early).
        """
        speed = -math.inf if self.speedup is None else self.speedup
        rung = list(Rung).index(self.report.rung) if self.report else -1
        return self.correct, speed, rung, -self.turn


def best_of(attempts: Sequence[JudgedAttempt]) -> JudgedAttempt | None:
    """Returns the fastest correct attempt; the first correct attempt if none was timed; None if
    none is correct.
    """
    correct = [attempt for attempt in attempts if attempt.correct]
    return max(correct, key=lambda attempt: attempt.rank, default=None)


def from_turn(turn: Turn, earlier: Sequence[JudgedAttempt]) -> JudgedAttempt:
    """Converts a stored turn to an attempt."""
    completion = turn.completion
    attempt = JudgedAttempt(
        candidate_id=turn.candidate_id,
        turn=turn.turn,
        action=turn.action,
        parent_id=turn.parent_id,
        report=turn.report,
        tool_seconds=turn.tool_seconds or 0.0,
        gpu_seconds=turn.gpu_seconds or 0.0,
    )
    if completion is None:
        return attempt
    parent = next((other for other in earlier if other.candidate_id == turn.parent_id), None)
    answered = attempt.with_(
        finish=completion.finish,
        usage=completion.usage,
        policy_seconds=completion.latency,
        source=turn.source,
        origin=completion.origin,
        author=author_in_words(completion, turn.action, parent),
    )
    return with_identity(answered, earlier)


def author_in_words(completion: Completion, action: Action, parent: JudgedAttempt | None) -> str:
    """Returns the author of a turn's text. A turn of TUNE changes only numbers and keeps its
    parent's author.
    """
    if action is Action.TUNE and parent is not None:
        return tuned_author(parent.author)
    return author_of(completion)


def with_identity(attempt: JudgedAttempt, earlier: Sequence[JudgedAttempt]) -> JudgedAttempt:
    """Returns the attempt with the hash of its program and the number of the turn that had the
    same program.
    """
    if attempt.source is None:
        return attempt
    program_hash = candidate_hash(attempt.source)
    same = next(
        (
            other.turn
            for other in earlier
            if other.hash == program_hash and other.report is not None
        ),
        None,
    )
    return attempt.with_(hash=program_hash, repeats=same)

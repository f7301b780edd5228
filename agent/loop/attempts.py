"""The turns of a run in memory: enough to decide what comes next, and nothing that is not in the store as well."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelwright.policies.authors import author_of, tuned_author
from kernelwright.policies.base import Completion, FinishReason, Origin, Usage, Value
from kernelwright.store.models import Action
from kernelwright.store.records import Turn
from kernelwright.tools.report import Fault, Report, Rung
from kernelwright.tools.source import candidate_hash


class Attempt(Value):
    """One turn: a candidate and its verdict."""

    candidate_id: int
    turn: int
    action: Action
    parent_id: int | None
    source: str | None = None
    """The text of the candidate; None where the reply held no code."""
    origin: Origin = Origin.POLICY
    author: str = ""
    """The author of the text in words, as of `policies.authors`."""
    hash: str = ""
    finish: FinishReason | None = None
    usage: Usage | None = None
    report: Report | None = None
    tool_seconds: float = 0.0
    gpu_seconds: float = 0.0
    policy_seconds: float = 0.0
    repeats: int | None = None
    """The earlier turn with the same program."""
    inherited: bool = False
    """Whether it belongs to the trajectory that this one was forked from, and was paid for there."""

    @property
    def correct(self) -> bool:
        """Whether it was judged, and is right at every size."""
        return self.report is not None and self.report.correct

    @property
    def unreadable(self) -> bool:
        """Whether the reply has a format error: no code, or an end before the end of the code."""
        return self.source is None or self.cut_off

    @property
    def cut_off(self) -> bool:
        """The reply reached its limit of tokens before the code ended."""
        failure = self.report.failure if self.report else None
        broken = failure is not None and failure.fault in (
            Fault.SYNTAX,
            Fault.NO_CODE,
            Fault.ENTRY_POINT,
        )
        return self.finish is FinishReason.LENGTH and broken

    @property
    def speedup(self) -> float | None:
        """Returns the speedup over eager PyTorch; None where nothing was timed."""
        return self.report.speedup if self.report else None

    @property
    def rank(self) -> tuple[bool, float, int, int]:
        """Better ones are larger: correct, then fast, then far up the ladder, then early."""
        speed = -math.inf if self.speedup is None else self.speedup
        rung = list(Rung).index(self.report.rung) if self.report else -1
        return self.correct, speed, rung, -self.turn


def best_of(attempts: Sequence[Attempt]) -> Attempt | None:
    """The fastest of those that are correct; where none was timed the first; None where none is correct."""
    return max(
        (attempt for attempt in attempts if attempt.correct), key=lambda a: a.rank, default=None
    )


def from_turn(turn: Turn, earlier: Sequence[Attempt]) -> Attempt:
    """Makes the attempt of a stored turn."""
    completion = turn.completion
    attempt = Attempt(
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


def author_in_words(completion: Completion, action: Action, parent: Attempt | None) -> str:
    """Returns the author of a turn's text. A turn of TUNE changes the numbers of its parent, whose author it keeps."""
    return (
        tuned_author(parent.author)
        if action is Action.TUNE and parent is not None
        else author_of(completion)
    )


def with_identity(attempt: Attempt, earlier: Sequence[Attempt]) -> Attempt:
    """Returns the attempt with the hash of its program, and the turn that it repeats."""
    if attempt.source is None:
        return attempt
    own = candidate_hash(attempt.source)
    same = next(
        (other.turn for other in earlier if other.hash == own and other.report is not None), None
    )
    return attempt.with_(hash=own, repeats=same)

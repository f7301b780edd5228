"""Which candidate comes next.

Each search is a pure function of the turns so far, so that a run goes on wherever it was stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from kernelwright.agent.loop.attempts import Attempt, best_of
from kernelwright.agent.loop.stopping import Goal, StopReason, reason_to_finish
from kernelwright.policies.base import Value
from kernelwright.store.models import Action

MAX_FAILURES_BEFORE_DRAFT = 5
"""Failures in a row before a fresh draft."""
MAX_FAILURES_OF_REFINEMENT = 2
"""Failures in a row of a refinement before the best one is taken up again."""


class SearchKind(StrEnum):
    """The strategy by which a run chooses its next turn."""

    SERIAL = "serial"
    """Repair the current one until it is correct, then refine the best."""
    BEST_OF_N = "best-of-n"
    """Several independent drafts."""
    BEAM = "beam"
    """The best few, each taken further, round after round."""


class NextTurn(Value):
    """The action and the parent of the next turn."""

    action: Action
    parent: Attempt | None = None


class CandidateSearch(Protocol):
    """Decides from the attempts so far what a run does next."""

    def next(self, attempts: Sequence[Attempt]) -> NextTurn | StopReason:
        """The attempts are all judged, in their order."""
        ...


def make_search(kind: SearchKind, samples: int) -> CandidateSearch:
    """`samples`: drafts of best-of-n, width of the beam; serial looks at one at a time."""
    match kind:
        case SearchKind.SERIAL:
            return Serial()
        case SearchKind.BEST_OF_N:
            return BestOf(samples)
        case SearchKind.BEAM:
            return Beam(samples)


class GoalSearch:
    """A search that ends where the goal is reached, or where the turns so far say that going on is of no use."""

    def __init__(self, goal: Goal, search: CandidateSearch, tunes_from: int | None = None) -> None:
        """tunes_from: from so many turns on the numbers of every new best one are tuned before anything else is asked
        for; None: never.
        """
        self._goal, self._search, self._tunes_from = goal, search, tunes_from

    def next(self, attempts: Sequence[Attempt]) -> NextTurn | StopReason:
        """Ends at the goal; tunes an untuned best one where that is asked for; else the search inside decides."""
        if stop := reason_to_finish(self._goal, attempts):
            return stop
        tunes = self._tunes_from is not None and len(attempts) >= self._tunes_from
        if tunes and (untuned := _best_to_tune(attempts)) is not None:
            return NextTurn(action=Action.TUNE, parent=untuned)
        return self._search.next(attempts)


class Serial:
    """Repair follows the current candidate; refine follows the best, never merely the last.

    Where nothing is right yet and a reply says again what failed before, a fresh draft.
    """

    def next(self, attempts: Sequence[Attempt]) -> NextTurn | StopReason:
        """Returns the next turn: a draft first; then a repair of the last candidate until it is right, then a
        refinement of the best.
        """
        if not attempts:
            return NextTurn(action=Action.DRAFT)
        last, best = attempts[-1], best_of(attempts)
        failures = _failures_in_a_row(attempts)
        if last.unreadable:
            return repeat_turn(attempts)
        if best is not None and (last.correct or failures > MAX_FAILURES_OF_REFINEMENT):
            return NextTurn(action=Action.REFINE, parent=best)
        if best is None and (failures % MAX_FAILURES_BEFORE_DRAFT == 0 or last.repeats is not None):
            return NextTurn(action=Action.DRAFT)
        return NextTurn(action=Action.REPAIR, parent=last)


class BestOf:
    """Makes so many drafts and keeps the best; a reply without code is one of them."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def next(self, attempts: Sequence[Attempt]) -> NextTurn | StopReason:
        """Another draft until there are enough."""
        drafts = [attempt for attempt in attempts if attempt.action is not Action.TUNE]
        return NextTurn(action=Action.DRAFT) if len(drafts) < self._samples else StopReason.SAMPLES


class Beam:
    """Rounds of `width` turns: first drafts, then each of the best so far is repaired or refined once a round."""

    def __init__(self, width: int) -> None:
        self._width = width

    def next(self, attempts: Sequence[Attempt]) -> NextTurn | StopReason:
        """Returns the next turn of the round, on one of the best candidates so far."""
        asked = [attempt for attempt in attempts if attempt.action is not Action.TUNE]
        round_start = len(asked) // self._width * self._width
        tuned = [attempt for attempt in attempts if attempt.action is Action.TUNE]
        known = _without_repeats([*asked[:round_start], *tuned])
        if not round_start or not known:
            return NextTurn(action=Action.DRAFT)
        kept = sorted(known, key=lambda attempt: attempt.rank, reverse=True)[: self._width]
        parent = kept[(len(asked) - round_start) % len(kept)]
        return NextTurn(action=Action.REFINE if parent.correct else Action.REPAIR, parent=parent)


def repeat_turn(attempts: Sequence[Attempt]) -> NextTurn:
    """Returns the last turn's action once more."""
    last = attempts[-1]
    parent = next((attempt for attempt in attempts if attempt.candidate_id == last.parent_id), None)
    return NextTurn(action=last.action, parent=parent)


def _best_to_tune(attempts: Sequence[Attempt]) -> Attempt | None:
    """The best one, where it was measured and has not been tuned yet."""
    best = best_of(attempts)
    if best is None or best.action is Action.TUNE or attempts[-1].unreadable:
        return None
    measured = best.report is not None and best.report.profile is not None
    tuned = any(a.action is Action.TUNE and a.parent_id == best.candidate_id for a in attempts)
    return best if measured and not tuned else None


def _without_repeats(attempts: Sequence[Attempt]) -> list[Attempt]:
    return [attempt for attempt in attempts if not attempt.unreadable and attempt.repeats is None]


def _failures_in_a_row(attempts: Sequence[Attempt]) -> int:
    """Counts the readable candidates that failed in a row, up to the last one."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.correct:
            break
        count += not attempt.unreadable
    return count

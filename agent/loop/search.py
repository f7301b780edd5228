"""Chooses the next candidate of a run.

Each search is a pure function of the turns so far, so a stopped run continues with the same
choices. The serial search:

    turns so far                                     next turn
    none                                             draft
    1 draft, wrong                                   repair of 1
    1 draft, wrong; 2 repair, correct                refinement of 2, the best candidate
    the same; 3 refinement, wrong                    repair of 3
    the same; 3, 4 and 5 wrong                       refinement of 2
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from kernelwright.agent.loop.attempts import JudgedAttempt, best_of
from kernelwright.agent.loop.stopping import Goal, StopReason, reason_to_finish
from kernelwright.policies.base import Value
from kernelwright.store.models import Action

MAX_FAILURES_BEFORE_DRAFT = 5
"""Failures in a row before a fresh draft."""
MAX_FAILURES_OF_REFINEMENT = 2
"""Failures in a row of a refinement before the run goes back to the best candidate."""


class SearchKind(StrEnum):
    """The strategy by which a run chooses its next turn."""

    SERIAL = "serial"
    """Repair the current candidate until it is correct, then refine the best."""
    BEST_OF_N = "best-of-n"
    """Several independent drafts; the best is kept."""
    BEAM = "beam"
    """The best few candidates, each taken further, round after round."""


class NextTurn(Value):
    """The action and the parent of the next turn."""

    action: Action
    parent: JudgedAttempt | None = None


class CandidateSearch(Protocol):
    """Decides from the attempts so far what a run does next."""

    def next(self, attempts: Sequence[JudgedAttempt]) -> NextTurn | StopReason:
        """Returns the next turn, or the reason to end. The attempts are all judged, in their
        order.
        """
        ...


def make_search(kind: SearchKind, samples: int) -> CandidateSearch:
    """Returns the search of this kind.

    samples: drafts of best-of-n, width of the beam; serial follows a single candidate.
    """
    match kind:
        case SearchKind.SERIAL:
            return Serial()
        case SearchKind.BEST_OF_N:
            return BestOf(samples)
        case SearchKind.BEAM:
            return Beam(samples)


class GoalSearch:
    """A search that ends at the goal, or when the turns so far show that further turns are of no
    use.
    """

    def __init__(self, goal: Goal, search: CandidateSearch, tunes_from: int | None = None) -> None:
        """tunes_from: number of turns from which on every new best candidate is tuned before any
        other turn. None: never.
        """
        self._goal, self._search, self._tunes_from = goal, search, tunes_from

    def next(self, attempts: Sequence[JudgedAttempt]) -> NextTurn | StopReason:
        """Ends at the goal; tunes an untuned best candidate if tuning is on; else asks the inner
        search.
        """
        if stop := reason_to_finish(self._goal, attempts):
            return stop
        tunes = self._tunes_from is not None and len(attempts) >= self._tunes_from
        if tunes and (untuned := _best_to_tune(attempts)) is not None:
            return NextTurn(action=Action.TUNE, parent=untuned)
        return self._search.next(attempts)


class Serial:
    """Repairs the last candidate until it is correct; refines the best candidate, never merely
    the last.

    Asks for a fresh draft if nothing is correct yet and a reply repeats a failed program.
    """

    def next(self, attempts: Sequence[JudgedAttempt]) -> NextTurn | StopReason:
        """Returns a draft first, then a repair of the last candidate until it is correct, then a
        refinement of the best.
        """
        if not attempts:
            return NextTurn(action=Action.DRAFT)
        last, best = attempts[-1], best_of(attempts)
        failures = _failures_in_a_row(attempts)
        if last.unreadable:
            # A format error says nothing about the candidate: the prompt names it and asks again.
            return repeat_turn(attempts)
        if best is not None and (last.correct or failures > MAX_FAILURES_OF_REFINEMENT):
            return NextTurn(action=Action.REFINE, parent=best)
        if best is None and (failures % MAX_FAILURES_BEFORE_DRAFT == 0 or last.repeats is not None):
            return NextTurn(action=Action.DRAFT)
        return NextTurn(action=Action.REPAIR, parent=last)


class BestOf:
    """Makes a fixed number of drafts and keeps the best; a reply without code counts as a draft."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def next(self, attempts: Sequence[JudgedAttempt]) -> NextTurn | StopReason:
        """Returns another draft until there are enough."""
        drafts = [attempt for attempt in attempts if attempt.action is not Action.TUNE]
        return NextTurn(action=Action.DRAFT) if len(drafts) < self._samples else StopReason.SAMPLES


class Beam:
    """Rounds of `width` turns: first drafts, then a repair or a refinement of each of the best
    candidates so far.
    """

    def __init__(self, width: int) -> None:
        self._width = width

    def next(self, attempts: Sequence[JudgedAttempt]) -> NextTurn | StopReason:
        """Returns the next turn of the round, on one of the best candidates so far."""
        policy_attempts = [attempt for attempt in attempts if attempt.action is not Action.TUNE]
        round_start = len(policy_attempts) // self._width * self._width
        # Tuned programs belong to no round: they compete as soon as they are judged.
        tuned = [attempt for attempt in attempts if attempt.action is Action.TUNE]
        distinct = _without_repeats([*policy_attempts[:round_start], *tuned])
        if not round_start or not distinct:
            return NextTurn(action=Action.DRAFT)
        beam = sorted(distinct, key=lambda attempt: attempt.rank, reverse=True)[: self._width]
        parent = beam[(len(policy_attempts) - round_start) % len(beam)]
        return NextTurn(action=Action.REFINE if parent.correct else Action.REPAIR, parent=parent)


def repeat_turn(attempts: Sequence[JudgedAttempt]) -> NextTurn:
    """Returns the last turn's action once more."""
    last = attempts[-1]
    parent = next((attempt for attempt in attempts if attempt.candidate_id == last.parent_id), None)
    return NextTurn(action=last.action, parent=parent)


def _best_to_tune(attempts: Sequence[JudgedAttempt]) -> JudgedAttempt | None:
    """Returns the best candidate if it was measured and has not been tuned yet."""
    best = best_of(attempts)
    if best is None or best.action is Action.TUNE or attempts[-1].unreadable:
        return None
    measured = best.report is not None and best.report.profile is not None
    tuned = any(a.action is Action.TUNE and a.parent_id == best.candidate_id for a in attempts)
    return best if measured and not tuned else None


def _without_repeats(attempts: Sequence[JudgedAttempt]) -> list[JudgedAttempt]:
    return [attempt for attempt in attempts if not attempt.unreadable and attempt.repeats is None]


def _failures_in_a_row(attempts: Sequence[JudgedAttempt]) -> int:
    """Counts the readable candidates that failed in a row, up to the last one."""
    count = 0
    for attempt in reversed(attempts):
        if attempt.correct:
            break
        count += not attempt.unreadable
    return count

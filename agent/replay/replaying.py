"""Replays: the machine of `agent solve` with a scripted policy that gives the stored replies, over a database that is
thrown away.

Without tools the verdicts too come from the store. With them every candidate is judged again, in the order and by the
rules of its run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from kernelwright.agent.loop.attempts import Attempt, best_of
from kernelwright.agent.loop.machine import TOOL_STATES, State
from kernelwright.agent.loop.run import Run
from kernelwright.agent.loop.run_verdicts import Participants, VerdictSource
from kernelwright.agent.loop.search import CandidateSearch, NextTurn
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Budgets, StopReason
from kernelwright.agent.replay.drift import VerdictDrift, compare_reports
from kernelwright.policies.base import Completion, Value
from kernelwright.policies.scripted import ScriptedPolicy
from kernelwright.store.database import Store
from kernelwright.store.lineage import history
from kernelwright.store.models import Trajectory
from kernelwright.store.records import Turn
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Fault, Report, Rung, clean_text

UNLIMITED_BUDGETS = Budgets(turns=None)
"""Budgets without limits: the stored turns are already paid for."""


class ReplayedTurn(Value):
    """One turn of a trajectory that was repeated."""

    turn: int
    """The number of the turn, from 0."""
    candidate_id: int
    trajectory_id: int
    """Another than the replayed one's where it was forked from there."""
    action: str
    states: tuple[State, ...]
    """States that the machine went through."""
    rung: Rung
    correct: bool
    fault: Fault | None = None
    message: str = ""
    speedup: float | None = None
    repeats: int | None = None
    best: int | None = None
    """The best turn so far."""
    departure: str = ""
    """The action that today's machine would have taken in place of the stored one; empty where they are equal."""
    judged: bool = False
    """Whether it was judged by today's tools, in this replay."""
    drift: VerdictDrift = VerdictDrift()


class ReplayResult(Value):
    """A trajectory that was repeated."""

    trajectory_id: int
    problem: str
    policy: str
    forked_from_id: int | None
    stop_reason: str
    """Empty while it is not finished."""
    message: str
    turns: tuple[ReplayedTurn, ...]
    unjudged: int
    """Turns without a verdict: `agent solve` takes those up."""
    best_candidate_id: int | None
    rescored: int = 0
    """New verdicts that were saved."""

    @property
    def verdicts_changed(self) -> int:
        """Turns whose verdict is another one today."""
        return sum(turn.drift.verdict_changed for turn in self.turns)


class RecordedSearch:
    """A search that takes the way that was taken, and notes where today's would have turned off."""

    def __init__(self, turns: Sequence[Turn], stop: StopReason, own: CandidateSearch) -> None:
        self._turns, self._stop, self._own = turns, stop, own
        self._places = {turn.candidate_id: place for place, turn in enumerate(turns)}
        self.departures: dict[int, str] = {}
        """The differences of today's machine, by the turn after which they occur."""

    def next(self, attempts: Sequence[Attempt]) -> NextTurn | StopReason:
        """The turn that was taken then; where the search would take another today, that is noted as a departure."""
        taken = self._taken(attempts)
        own = self._own.next(attempts)
        # A search knows nothing of budgets and interrupts: only where it stops itself does it differ from a stop.
        if self._told(own) != self._told(taken) and not (
            isinstance(taken, StopReason) and isinstance(own, NextTurn)
        ):
            self.departures[len(attempts) - 1] = self._told(own)
        return taken

    def _taken(self, attempts: Sequence[Attempt]) -> NextTurn | StopReason:
        if len(attempts) == len(self._turns):
            return self._stop
        turn = self._turns[len(attempts)]
        place = None if turn.parent_id is None else self._places.get(turn.parent_id)
        return NextTurn(action=turn.action, parent=None if place is None else attempts[place])

    def _told(self, plan: NextTurn | StopReason) -> str:
        if isinstance(plan, StopReason):
            return f"stop: {plan.replace('_', ' ')}"
        parent = "" if plan.parent is None else f" of turn {self._turns[plan.parent.turn].turn + 1}"
        return f"{plan.action}{parent}"


class StoredVerdicts:
    """The stored verdicts, whatever the tools would say."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = turns

    def report(
        self, problem: Problem, attempt: Attempt, earlier: Sequence[Attempt], say: Callable[[str], None],
        deadline: float | None = None,
    ) -> Report:  # fmt: skip
        """The stored report of this turn, which must have one."""
        report = self._turns[attempt.turn].report
        assert report is not None
        return report

    def require_working(self, problem: Problem) -> None:
        """Does nothing: no reference is run."""

    def gpu_seconds(self, report: Report) -> float:
        """Seconds of a GPU that a verdict cost: none, for nothing is judged."""
        return 0.0


class FreshVerdicts:
    """Today's tools on the stored code, but for turns that belong to another trajectory, or that `known` has been
    told of.
    """

    def __init__(
        self, turns: Sequence[Turn], own: int, judging: VerdictSource, known: Callable[[Turn], bool],
        keep: Callable[[Turn, Report], None], tell: Callable[[str], None] = lambda doing: None,
    ) -> None:  # fmt: skip
        """`tell`: what the tools do, for people. It does not go through the machine, where it could be interrupted."""
        self._turns, self._own, self._judging, self._known, self._keep = (
            turns,
            own,
            judging,
            known,
            keep,
        )
        self._tell = tell
        self.judged: set[int] = set()

    def report(
        self, problem: Problem, attempt: Attempt, earlier: Sequence[Attempt], say: Callable[[str], None],
        deadline: float | None = None,
    ) -> Report:  # fmt: skip
        """Today's report on the stored text, given to `keep`; a turn that is another's, or known, keeps its own."""
        turn = self._turns[attempt.turn]
        if turn.report is not None and (turn.trajectory_id != self._own or self._known(turn)):
            return turn.report
        place = f"turn {attempt.turn + 1} of {len(self._turns)}"
        self._tell(f"{place}: judging")
        report = self._judging.report(
            problem,
            attempt.with_(source=turn.source),
            earlier,
            lambda doing: self._tell(f"{place}: {doing}"),
        )
        self._keep(turn, report)
        self.judged.add(attempt.turn)
        return report

    def require_working(self, problem: Problem) -> None:
        """Has the judging underneath try the reference. Raises ProblemError where it fails."""
        self._judging.require_working(problem)

    def gpu_seconds(self, report: Report) -> float:
        """Seconds of a GPU that the verdict cost, as the judging underneath counts them."""
        return self._judging.gpu_seconds(report)


Judge = Callable[[Sequence[Turn]], VerdictSource]
"""Gives the verdicts for the turns of one trajectory."""


def replay(
    store: Store,
    trajectory: Trajectory,
    scratch: Store,
    judge: Judge,
    say: Callable[[str], None] = lambda doing: None,
) -> ReplayResult:
    """Replays one trajectory through the machine. Raises what the tools raise, and KeyboardInterrupt; nothing of
    `store` is changed here.
    """
    turns = history(store, trajectory)
    known = [turn for turn in turns if turn.report is not None and turn.completion is not None]
    settings = Settings.of(trajectory).with_(budgets=UNLIMITED_BUDGETS)
    own = settings.aimed_search()
    course = RecordedSearch(known, _stop_of(trajectory), own)
    walked: dict[int, list[State]] = {}

    def watch(run: Run, doing: str) -> None:
        _note(walked, run)
        say(doing)

    problem = store.problem(trajectory.id)
    judges = judge(known)
    run = Run(
        scratch, scratch.begin(settings.start(problem), resume=False), problem,
        Participants(_script(known), judges, search=course), settings, watch,
    )  # fmt: skip
    while known and run.state is not State.DONE:
        run.step()
    judged = judges.judged if isinstance(judges, FreshVerdicts) else set()
    shown = [
        _turn(
            known,
            run.attempts[: n + 1],
            walked.get(n, ()),
            course.departures.get(n, ""),
            n in judged,
        )
        for n in range(len(known))
    ]
    best = run.best
    return ReplayResult(
        trajectory_id=trajectory.id, problem=trajectory.problem, policy=trajectory.policy,
        forked_from_id=trajectory.forked_from_id, stop_reason=trajectory.stop_reason or "", message=trajectory.message,
        turns=tuple(shown), unjudged=len(turns) - len(known),
        best_candidate_id=known[best.turn].candidate_id if best else None,
    )  # fmt: skip


def _stop_of(trajectory: Trajectory) -> StopReason:
    return StopReason(trajectory.stop_reason) if trajectory.stop_reason else StopReason.INTERRUPTED


def _script(turns: Sequence[Turn]) -> ScriptedPolicy:
    answers: list[str | Completion] = [
        turn.completion for turn in turns if turn.completion is not None
    ]
    return ScriptedPolicy(answers, name="replay")


def _note(walked: dict[int, list[State]], run: Run) -> None:
    """Notes the state of the machine for the current turn."""
    if run.state is State.DONE:
        return
    turn = run.current.turn if run.state in TOOL_STATES and run.current else len(run.attempts)
    states = walked.setdefault(turn, [])
    if not states or states[-1] is not run.state:
        states.append(run.state)


def _turn(
    turns: Sequence[Turn], attempts: Sequence[Attempt], states: Sequence[State], departure: str, judged: bool
) -> ReplayedTurn:  # fmt: skip
    """Returns the row of the last of `attempts`, which are the first so many of `turns`."""
    turn, attempt, best = turns[len(attempts) - 1], attempts[-1], best_of(attempts)
    report, stored = attempt.report, turn.report
    assert report is not None
    assert stored is not None
    return ReplayedTurn(
        turn=turn.turn, candidate_id=turn.candidate_id, trajectory_id=turn.trajectory_id, action=turn.action.value,
        states=tuple(states), rung=report.rung, correct=report.correct,
        fault=report.failure.fault if report.failure else None,
        message=_line(report.failure.message) if report.failure else "", speedup=report.speedup,
        repeats=None if attempt.repeats is None else turns[attempt.repeats].turn,
        best=turns[best.turn].turn if best else None, departure=departure, judged=judged,
        drift=compare_reports(stored, report),
    )  # fmt: skip


def _line(text: str) -> str:
    return textwrap.shorten(clean_text(text, 2000), 200, placeholder=" ...")

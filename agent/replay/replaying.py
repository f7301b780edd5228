"""Replays trajectories: runs the state machine of `agent solve` with a scripted policy that
returns stored replies, on a temporary database.

Without tools, verdicts come from the store. With tools, every candidate is judged again, in the
order and by the rules of its run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from kernelwright.agent.loop.attempts import JudgedAttempt, best_of
from kernelwright.agent.loop.machine import TOOL_STATES, RunState
from kernelwright.agent.loop.run import Run
from kernelwright.agent.loop.run_verdicts import Participants, VerdictProvider
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
"""Budgets without limits, because stored turns cost nothing."""


class ReplayedTurn(Value):
    """Turn of a replayed trajectory."""

    turn: int
    """Number of the turn, from 0."""
    candidate_id: int
    trajectory_id: int
    """Trajectory of the turn; another one for turns before a fork."""
    action: str
    states: tuple[RunState, ...]
    """States visited by the state machine."""
    rung: Rung
    correct: bool
    fault: Fault | None = None
    message: str = ""
    speedup: float | None = None
    repeats: int | None = None
    best: int | None = None
    """Best turn so far."""
    departure: str = ""
    """Action of the current search if different from the recorded action; otherwise empty."""
    judged: bool = False
    """Whether the current tools judged the turn in this replay."""
    shapes: tuple[str, ...] = ()
    """A line for the verdict at each shape that the problem names."""
    drift: VerdictDrift = VerdictDrift()


class ReplayResult(Value):
    """Result of replaying a trajectory."""

    trajectory_id: int
    problem: str
    policy: str
    forked_from_id: int | None
    stop_reason: str
    """Reason for the stop; empty while unfinished."""
    message: str
    turns: tuple[ReplayedTurn, ...]
    unjudged: int
    """Number of turns without a verdict, which `agent solve` resumes."""
    best_candidate_id: int | None
    rescored: int = 0
    """Number of saved new verdicts."""

    @property
    def verdicts_changed(self) -> int:
        """Number of turns with a changed verdict."""
        return sum(turn.drift.verdict_changed for turn in self.turns)


class RecordedSearch:
    """Search that repeats recorded steps and notes departures of the current search."""

    def __init__(
        self, turns: Sequence[Turn], stop: StopReason, current_search: CandidateSearch
    ) -> None:
        self._turns, self._stop, self._current_search = turns, stop, current_search
        self._index_of_candidate = {turn.candidate_id: index for index, turn in enumerate(turns)}
        self.departures: dict[int, str] = {}
        """Departures of the current search, by the index of the preceding turn."""

    def next(self, attempts: Sequence[JudgedAttempt]) -> NextTurn | StopReason:
        """Returns the recorded step; a different step of the current search is noted as a
        departure.
        """
        recorded_step = self._recorded_step(attempts)
        current_step = self._current_search.next(attempts)
        # A search does not know budgets and interrupts, so a recorded stop before another turn is
        # no departure.
        was_stopped = isinstance(recorded_step, StopReason) and isinstance(current_step, NextTurn)
        departure = self._describe_step(current_step)
        if departure != self._describe_step(recorded_step) and not was_stopped:
            self.departures[len(attempts) - 1] = departure
        return recorded_step

    def _recorded_step(self, attempts: Sequence[JudgedAttempt]) -> NextTurn | StopReason:
        if len(attempts) == len(self._turns):
            return self._stop
        turn = self._turns[len(attempts)]
        parent_index = (
            None if turn.parent_id is None else self._index_of_candidate.get(turn.parent_id)
        )
        return NextTurn(
            action=turn.action, parent=None if parent_index is None else attempts[parent_index]
        )

    def _describe_step(self, plan: NextTurn | StopReason) -> str:
        if isinstance(plan, StopReason):
            return f"stop: {plan.replace('_', ' ')}"
        parent = "" if plan.parent is None else f" of turn {self._turns[plan.parent.turn].turn + 1}"
        return f"{plan.action}{parent}"


class StoredVerdicts:
    """Verdict source that returns stored verdicts."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = turns

    def report(
        self, problem: Problem, attempt: JudgedAttempt, earlier: Sequence[JudgedAttempt], say: Callable[[str], None],
        deadline: float | None = None,
    ) -> Report:  # fmt: skip
        """Returns the stored report of the turn, which must exist."""
        report = self._turns[attempt.turn].report
        assert report is not None
        return report

    def require_working(self, problem: Problem) -> None:
        """Does nothing, because no reference is run."""

    def gpu_seconds(self, report: Report) -> float:
        """Returns 0: stored verdicts use no GPU time."""
        return 0.0


class FreshVerdicts:
    """Verdict source that judges stored code with the current tools.

    Turns of other trajectories, and turns for which `keeps_verdict` is true, keep their stored
    verdicts.
    """

    def __init__(
        self, turns: Sequence[Turn], trajectory_id: int, judge: VerdictProvider, keeps_verdict: Callable[[Turn], bool],
        keep: Callable[[Turn, Report], None], tell: Callable[[str], None] = lambda doing: None,
    ) -> None:  # fmt: skip
        """tell: receives progress messages directly, because messages through the state machine
        may interrupt the verdict.
        """
        self._turns = turns
        self._trajectory_id = trajectory_id
        self._judge = judge
        self._keeps_verdict = keeps_verdict
        self._keep = keep
        self._tell = tell
        self.judged: set[int] = set()

    def report(
        self, problem: Problem, attempt: JudgedAttempt, earlier: Sequence[JudgedAttempt], say: Callable[[str], None],
        deadline: float | None = None,
    ) -> Report:  # fmt: skip
        """Returns the new report on the stored text and passes it to `keep`; inherited turns keep
        their stored report.
        """
        turn = self._turns[attempt.turn]
        is_inherited = turn.trajectory_id != self._trajectory_id
        if turn.report is not None and (is_inherited or self._keeps_verdict(turn)):
            return turn.report
        progress = f"turn {attempt.turn + 1} of {len(self._turns)}"
        self._tell(f"{progress}: judging")
        report = self._judge.report(
            problem,
            attempt.with_(source=turn.source),
            earlier,
            lambda doing: self._tell(f"{progress}: {doing}"),
        )
        self._keep(turn, report)
        self.judged.add(attempt.turn)
        return report

    def require_working(self, problem: Problem) -> None:
        """Runs the reference once. Raises ProblemError if it fails."""
        self._judge.require_working(problem)

    def gpu_seconds(self, report: Report) -> float:
        """Returns the GPU seconds of the verdict."""
        return self._judge.gpu_seconds(report)


VerdictSourceFactory = Callable[[Sequence[Turn]], VerdictProvider]
"""Creates the verdict source for the turns of a trajectory."""


def replay(
    store: Store,
    trajectory: Trajectory,
    scratch: Store,
    judge: VerdictSourceFactory,
    say: Callable[[str], None] = lambda doing: None,
) -> ReplayResult:
    """Replays a trajectory through the state machine, without changing `store`.

    Raises errors of the tools, and KeyboardInterrupt.
    """
    turns = history(store, trajectory)
    judged_turns = [
        turn for turn in turns if turn.report is not None and turn.completion is not None
    ]
    settings = Settings.of(trajectory).with_(budgets=UNLIMITED_BUDGETS)
    current_search = settings.aimed_search()
    search = RecordedSearch(judged_turns, _stop_of(trajectory), current_search)
    visited_states: dict[int, list[RunState]] = {}

    def watch(run: Run, doing: str) -> None:
        _note(visited_states, run)
        say(doing)

    problem = store.problem(trajectory.id)
    verdicts = judge(judged_turns)
    scratch_row = scratch.begin(settings.start(problem), resume=False)
    participants = Participants(_script(judged_turns), verdicts, search=search)
    run = Run(scratch, scratch_row, problem, participants, settings, watch)
    while judged_turns and run.state is not RunState.DONE:
        run.step()
    rejudged = verdicts.judged if isinstance(verdicts, FreshVerdicts) else set()
    replayed_turns: list[ReplayedTurn] = []
    for index in range(len(judged_turns)):
        attempts = run.attempts[: index + 1]
        states = visited_states.get(index, ())
        departure = search.departures.get(index, "")
        replayed_turns.append(_turn(judged_turns, attempts, states, departure, index in rejudged))
    best = run.best
    return ReplayResult(
        trajectory_id=trajectory.id, problem=trajectory.problem, policy=trajectory.policy,
        forked_from_id=trajectory.forked_from_id, stop_reason=trajectory.stop_reason or "", message=trajectory.message,
        turns=tuple(replayed_turns), unjudged=len(turns) - len(judged_turns),
        best_candidate_id=judged_turns[best.turn].candidate_id if best else None,
    )  # fmt: skip


def _stop_of(trajectory: Trajectory) -> StopReason:
    return StopReason(trajectory.stop_reason) if trajectory.stop_reason else StopReason.INTERRUPTED


def _script(turns: Sequence[Turn]) -> ScriptedPolicy:
    answers: list[str | Completion] = [
        turn.completion for turn in turns if turn.completion is not None
    ]
    return ScriptedPolicy(answers, name="replay")


def _note(visited_states: dict[int, list[RunState]], run: Run) -> None:
    """Records the state of the state machine for the current turn."""
    if run.state is RunState.DONE:
        return
    turn = run.current.turn if run.state in TOOL_STATES and run.current else len(run.attempts)
    states = visited_states.setdefault(turn, [])
    if not states or states[-1] is not run.state:
        states.append(run.state)


def _turn(
    turns: Sequence[Turn], attempts: Sequence[JudgedAttempt], states: Sequence[RunState], departure: str, judged: bool
) -> ReplayedTurn:  # fmt: skip
    """Returns the replayed turn for the last attempt; attempts correspond to the first turns in
    order.
    """
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
        shapes=tuple(_line(verdict.line) for verdict in report.shapes),
        drift=compare_reports(stored, report),
    )  # fmt: skip


def _line(text: str) -> str:
    return textwrap.shorten(clean_text(text, 2000), 200, placeholder=" ...")

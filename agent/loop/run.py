"""Runs one trajectory.

`Run.step` does the action of the current state and moves along an edge of MACHINE. Each row is
written to the store before its action begins.

All decisions of a run follow from the turns in the store, so the same command continues at the
exact turn, whatever stopped the run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from kernelwright.agent.loop.attempts import JudgedAttempt, best_of, from_turn, with_identity
from kernelwright.agent.loop.machine import POLICY_STATES, ActionOutcome, RunState, follow
from kernelwright.agent.loop.policy_question import WAITING_FOR, QuestionWriter, redrafts_in_fp32
from kernelwright.agent.loop.run_verdicts import Participants, unreadable_report
from kernelwright.agent.loop.search import NextTurn
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import (
    PAUSING_REASONS,
    Spent,
    StopReason,
    exhausted_budget,
    sum_spent,
    sum_usages,
)
from kernelwright.agent.loop.time_limit import (
    TimeLimitReached,
    check_time,
    seconds_of_earlier_calls,
    time_limit_seconds,
)
from kernelwright.agent.runtime.interrupts import stop_was_asked
from kernelwright.policies.base import (
    AskingInterrupted,
    Completion,
    HasSeveralAuthors,
    Origin,
    PolicyError,
    PolicyRefused,
    PolicyUnavailable,
    Request,
    Trouble,
    Usage,
)
from kernelwright.policies.deadlines import DeadlineReached
from kernelwright.store.connection.errors import StoreError
from kernelwright.store.database import Store
from kernelwright.store.lineage import history
from kernelwright.store.models import Action, Candidate, CandidateState, Trajectory
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import InfrastructureError, Report, Rung
from kernelwright.tools.verdict_cache import UNCACHED_FAULTS

Watch = Callable[["Run", str], None]
"""Callback for every change of a run: receives the run and a description of its current action."""


def _ignore_progress(run: Run, doing: str) -> None: ...


class Run:
    """The state machine of one trajectory of `store.begin`, new or stopped before."""

    def __init__(
        self,
        store: Store,
        trajectory: Trajectory,
        problem: Problem,
        participants: Participants,
        settings: Settings,
        watch: Watch = _ignore_progress,
    ) -> None:
        self.store, self.trajectory_id, self.problem = store, trajectory.id, problem
        self.settings = settings
        self._policy, self._judging = participants.policy, participants.judging
        self._tuner = participants.tuner
        self._watch = watch
        self._questions = QuestionWriter(problem, self._policy, settings, trajectory.id)
        self._search = participants.search or settings.aimed_search()
        self._started = time.monotonic()
        self.state = RunState.DRAFT
        self.attempts: list[JudgedAttempt] = []
        """Candidates with a verdict, in the order of their turns."""
        self.current: JudgedAttempt | None = None
        """The candidate being written or judged."""
        self.stop_reason: StopReason | None = None
        self.message = ""
        self._plan = NextTurn(action=Action.DRAFT)
        self._earlier_seconds = seconds_of_earlier_calls(trajectory.spent)
        self._paid_for_nothing: Usage | None = None
        """Usage of charged answers without a reply to the open turn."""
        self._restore(trajectory)

    @property
    def best(self) -> JudgedAttempt | None:
        """Returns the fastest correct candidate so far; None if none is correct."""
        return best_of(self.attempts)

    @property
    def spent(self) -> Spent:
        """Returns the part of the budgets that the turns have used, earlier calls included."""
        pending = [self.current] if self.current is not None and self.current.report is None else []
        own_attempts = [attempt for attempt in [*self.attempts, *pending] if not attempt.inherited]
        lost_usages = [] if self._paid_for_nothing is None else [self._paid_for_nothing]
        return sum_spent(
            own_attempts, self._earlier_seconds + time.monotonic() - self._started, lost_usages
        )

    def run(self) -> StopReason:
        """Takes turns until the run is done or something stops it.

        Raises StoreError if the store cannot be written: without a store nothing can be paused.
        """
        try:
            if self.state is not RunState.DONE and not self.attempts and self.current is None:
                self._watch(self, "running the reference")
                self._judging.require_working(self.problem)
            while self.state is not RunState.DONE:
                self.step()
        except KeyboardInterrupt:
            self.stop(StopReason.INTERRUPTED)
        except (DeadlineReached, TimeLimitReached) as error:
            self.stop(StopReason.WALL, str(error))
        except PolicyUnavailable as error:
            self.stop(StopReason.INFRASTRUCTURE, str(error))
        except PolicyRefused as error:
            is_missing = error.trouble is Trouble.NOT_INSTALLED
            self.stop(StopReason.INFRASTRUCTURE if is_missing else StopReason.REFUSED, str(error))
        except ProblemError as error:
            self.stop(StopReason.PROBLEM, str(error))
        # Before the next clause, because a StoreError is an InfrastructureError.
        except StoreError:
            raise
        except (InfrastructureError, OSError, MemoryError) as error:
            self.stop(StopReason.INFRASTRUCTURE, str(error))
        assert self.stop_reason is not None
        return self.stop_reason

    def step(self) -> RunState:
        """Does one action of the current state.

        Errors that are not the candidate's are raised, and nothing is counted for them.
        """
        if self.state is RunState.DONE:
            return self.state
        if reason := self._forbidden():
            self.stop(reason)
            return self.state
        if self.state in POLICY_STATES or self.state is RunState.TUNE:
            self._ask()
        elif self.state is RunState.COMPILE:
            self._judge()
        else:
            self._climb()
        return self.state

    def _forbidden(self) -> StopReason | None:
        """Returns the reason if a budget forbids the next action. Walking up an existing report
        costs nothing.
        """
        # A turn of TUNE and a second draft in fp32 do not ask the policy, so they cost no turn.
        last = self.attempts[-1] if self.attempts else None
        asks_policy = self.state in POLICY_STATES and not redrafts_in_fp32(self.state, last)
        has_verdict = self.current is not None and self.current.report is not None
        is_costly = asks_policy or self.state is RunState.TUNE or not has_verdict
        if not is_costly:
            return None
        deadline = self._deadline()
        if deadline is not None and time.monotonic() >= deadline:
            return StopReason.WALL
        return exhausted_budget(self.settings.budgets, self.spent, asks_policy)

    def _deadline(self) -> float | None:
        """Returns the time of the monotonic clock at which the run ends; None if the run has no
        time limit.
        """
        seconds = time_limit_seconds(
            self.settings.budgets, self._earlier_seconds, solved=self.best is not None
        )
        return None if seconds is None else self._started + seconds

    def stop(self, reason: StopReason, message: str = "") -> None:
        """Stores the reason and ends the run. After a pausing reason the same command continues."""
        best = self.best
        write = self.store.pause if reason in PAUSING_REASONS else self.store.finish
        write(
            self.trajectory_id,
            reason.value,
            message=message,
            best_id=best.candidate_id if best else None,
            spent=self.spent.plain(),
        )
        self.stop_reason, self.message = reason, message
        self._move(ActionOutcome.STOPPED, RunState.DONE, reason.replace("_", " "))

    def _ask(self) -> None:
        """Writes the turn's row, asks the policy, and writes the answer."""
        turn = len(self.attempts)
        request = self._questions.request(self._plan, self.attempts, self.spent).with_(
            deadline=self._deadline()
        )
        parent = self._plan.parent
        row = self.store.draft(
            self.trajectory_id,
            request,
            action=self._plan.action,
            parent_id=parent.candidate_id if parent else None,
            turn=turn,
            prompt_version=self._questions.version,
        )
        completion = self._paid_answer(request, row)
        attempt, source = self._questions.read(row.id, turn, self._plan, completion)
        if source is None:
            self._answered_without_code(attempt, completion)
        else:
            self.store.complete(row.id, completion, source)
            self.current = with_identity(attempt, self.attempts)
            self._move(ActionOutcome.ANSWERED, RunState.COMPILE, "reading the code")

    def _paid_answer(self, request: Request, row: Candidate) -> Completion:
        """Asks for the answer. The usage of charged answers without a reply is stored at once and
        added to the answer's usage.
        """
        try:
            completion = self._answer(request)
        except (PolicyError, AskingInterrupted) as error:
            # Stored at once: the process may end before the next try.
            if error.paid:
                self.store.record_paid(row.id, error.paid[0])
                self._paid_for_nothing = sum_usages(
                    [self._paid_for_nothing, *(reply.usage for reply in error.paid[0])]
                )
            raise
        lost_usage, self._paid_for_nothing = self._paid_for_nothing, None
        return (
            completion
            if lost_usage is None
            else completion.with_(usage=completion.usage.plus(lost_usage))
        )

    def _answer(self, request: Request) -> Completion:
        """Asks the tuner for a turn of TUNE, and the policy for every other turn."""
        parent = self._plan.parent
        if self._plan.action is Action.TUNE and self._tuner is not None and parent is not None:
            self._watch(self, "tuning")
            return self._tuner.tuned(
                self.problem, parent, self.spent, self._watch_until(request.deadline)
            )
        if isinstance(self._policy, HasSeveralAuthors):
            self._policy.on_author = lambda author: self._watch(self, WAITING_FOR[author])
        else:
            self._watch(self, WAITING_FOR[Origin.POLICY])
        [completion] = self._policy.sample([request])
        return completion

    def _watch_until(self, deadline: float | None) -> Callable[[str], None]:
        """Returns the tuner's progress callback. The callback raises TimeLimitReached after the
        deadline and its grace.
        """

        def watch(doing: str) -> None:
            check_time(deadline)
            self._watch(self, doing)

        return watch

    def _answered_without_code(self, attempt: JudgedAttempt, completion: Completion) -> None:
        """Stores the answer and its verdict in one transaction: no tool is run for a reply
        without code.
        """
        with self.store.transaction():
            self.store.complete(attempt.candidate_id, completion, None)
            self.current = attempt
            self._record(unreadable_report(self.problem, completion))
        self._decide()

    def _judge(self) -> None:
        """Judges the candidate on all rungs, up to the first failure; stores the verdict; then
        climbs as far as the report goes.
        """
        assert self.current is not None
        if self.current.report is None:
            report = self._judging.report(
                self.problem,
                self.current,
                self.attempts,
                lambda doing: self._watch(self, doing),
                self._deadline(),
            )
            failure = report.failure
            if stop_was_asked() and failure is not None and failure.fault in UNCACHED_FAULTS:
                # A scheduler signals every process of a job, also the candidate's: the fault
                # may be the signal's.
                raise KeyboardInterrupt
            self._record(report)
        self._climb()

    def _record(self, report: Report) -> None:
        assert self.current is not None
        seconds, gpu = 0.0 if report.cached else report.seconds, self._judging.gpu_seconds(report)
        self.store.judge(self.current.candidate_id, report, tool_seconds=seconds, gpu_seconds=gpu)
        self.current = self.current.with_(report=report, tool_seconds=seconds, gpu_seconds=gpu)
        self.attempts.append(self.current)

    def _climb(self) -> None:
        """Moves to the next rung if the candidate passed the current rung; decides the next turn
        otherwise.
        """
        report = self._verdict()
        if self.state is RunState.COMPILE and report.rung not in (Rung.SOURCE, Rung.COMPILE):
            self._move(ActionOutcome.PASSED, RunState.CORRECTNESS, "compiled")
        elif self.state is RunState.CORRECTNESS and report.profile is not None:
            self._move(ActionOutcome.PASSED, RunState.PROFILE, "correct")
        else:
            self._decide()

    def _verdict(self) -> Report:
        assert self.current is not None
        assert self.current.report is not None
        return self.current.report

    def _decide(self) -> None:
        """Decides the turn that follows a verdict."""
        plan = self._search.next(self.attempts)
        if isinstance(plan, StopReason):
            self.stop(plan)
            return
        self._plan = plan
        target = RunState(plan.action.value)
        self._move(self._outcome(plan, target), target, f"going to {target}")

    def _outcome(self, plan: NextTurn, target: RunState) -> ActionOutcome:
        if self.state in POLICY_STATES:
            return ActionOutcome.UNREADABLE if target is self.state else ActionOutcome.ANOTHER
        assert self.current is not None
        same = plan.parent is not None and plan.parent.candidate_id == self.current.candidate_id
        match target:
            case RunState.REPAIR:
                return ActionOutcome.FAILED if same else ActionOutcome.ANOTHER
            case RunState.TUNE:
                return (
                    ActionOutcome.UNTUNED
                    if same and self.state is RunState.PROFILE
                    else ActionOutcome.ANOTHER
                )
            case RunState.REFINE if not self.current.correct:
                return ActionOutcome.ABANDONED
            case RunState.REFINE:
                return (
                    ActionOutcome.PASSED
                    if self.state is RunState.PROFILE
                    else ActionOutcome.UNMEASURED
                )
        return ActionOutcome.ANOTHER

    def _move(self, outcome: ActionOutcome, target: RunState, doing: str) -> None:
        self.state = follow(self.state, outcome, target)  # raises if MACHINE has no such edge
        self._watch(self, doing)

    def _restore(self, trajectory: Trajectory) -> None:
        """Reads the state from the store: an answer without a verdict is judged, and the policy
        is not asked again.
        """
        for turn in history(self.store, trajectory):
            inherited = turn.trajectory_id != trajectory.id
            attempt = from_turn(turn, self.attempts).with_(inherited=inherited)
            # At most the last turn is open: asked for without an answer, or answered and not judged.
            if turn.state is CandidateState.JUDGED:
                self.attempts.append(attempt)
            elif turn.state is CandidateState.DRAFTED:
                self.current = attempt
            else:
                self._paid_for_nothing = turn.paid_for_nothing
        if trajectory.finished is not None:
            self.state, self.stop_reason = RunState.DONE, StopReason(str(trajectory.stop_reason))
        elif self.current is not None:
            self.state = RunState.COMPILE
        elif self.attempts:
            # The process ended between a verdict and the next row: decide once more.
            self.current = self.attempts[-1]
            self.state = self._state_of_last_verdict()
            self._decide()

    def _state_of_last_verdict(self) -> RunState:
        """Returns the state (a tool's or the policy's) in which the last turn's verdict was
        written.
        """
        if self.current is not None and self.current.source is None:
            return RunState(self.current.action.value)
        report = self._verdict()
        if report.rung in (Rung.SOURCE, Rung.COMPILE):
            return RunState.COMPILE
        return RunState.CORRECTNESS if report.profile is None else RunState.PROFILE


def pause_owned(store: Store, trajectory_id: int, error: BaseException) -> None:
    """Pauses a trajectory whose run ended with an exception, if this process owns it and it is
    not finished, so the same command can continue it, also on another host.
    """
    with contextlib.suppress(StoreError):
        row = store.trajectory(trajectory_id)
        if row.finished is None and row.owner == store.owner:
            interrupted = isinstance(error, KeyboardInterrupt)
            reason = StopReason.INTERRUPTED if interrupted else StopReason.INFRASTRUCTURE
            store.pause(trajectory_id, reason.value, message=str(error))

"""Makes verdicts for the tools, with warm evaluators, a thread pool, the budget and the history."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kernelwright.agent.judging.pool import VerdictCancelled
from kernelwright.agent.mcp_server.answers import (
    AnswerState,
    Question,
    VerdictAnswer,
    VerdictOutcome,
)
from kernelwright.agent.mcp_server.budget import CLIENT, ClientBudgets, ServerBudget
from kernelwright.agent.mcp_server.history import History, StoredVerdict, utc_timestamp
from kernelwright.agent.mcp_server.requests import BASELINES, Access, find_problem, read_source
from kernelwright.agent.mcp_server.summaries import verdict_fields
from kernelwright.closing_context import ClosingContext
from kernelwright.errors import InputError
from kernelwright.tools.options import DEFAULT_SIZES
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.reference_trials.trials import reference_trials
from kernelwright.tools.report import InfrastructureError, Report, Value
from kernelwright.tools.source import candidate_hash

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options

log = logging.getLogger(__name__)
NEEDS_GPU_MESSAGES = {
    Question.BENCH: "bench needs a GPU and this server has none: check judges correctness here; start agent mcp "
    "--device cuda:0 on a machine with a GPU for times",
    Question.PROFILE: "profile needs a GPU to time anything and this server has none: what the compiler says of each "
    "kernel is here, times are not",
}
CANCELLED_MESSAGE = "this verdict was cancelled: ask again where it is wanted after all"
CALL_CANCEL_GRACE_SECONDS = 5.0
"""Seconds for a cancelled verdict to stop at its next step, before its processes are ended."""
SERVER_RESTARTED_MESSAGE = (
    "the server ended before this verdict was made: submit the candidate again"
)


class JudgeRequest(Value):
    """Request of a client for a verdict on a candidate."""

    question: Question
    problem: str
    """Name of a problem, path of a file, or text of a reference."""
    source: str
    """Text of a candidate, or path of its file."""
    targets: tuple[str, ...] = ()
    seed: int | None = None
    baseline: str = "eager"
    sizes: int = DEFAULT_SIZES
    """Sizes that are checked beside the problem's own."""
    own_work: str = "strict"


class ServerJudge(ClosingContext):
    """Judge of a server, with its evaluators and verdicts under way. Thread-safe; a context
    manager.
    """

    def __init__(
        self,
        device: str,
        history: History,
        budgets: ClientBudgets,
        access: Access,
        workers: int = 2,
    ) -> None:
        """device: `cpu` or `cuda:N`. workers: number of verdicts on the CPU rungs in parallel."""
        self.device, self.history, self._budgets, self.access = device, history, budgets, access
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="mcp-verdict")
        self._evaluators: dict[str, Evaluator] = {}
        self._opening = threading.Lock()
        self._running: dict[str, Future[VerdictAnswer]] = {}
        self._doing: dict[str, str] = {}
        self._problems: dict[str, Problem] = {}
        """Problem of each verdict under way, by the verdict's id."""
        self._cancelled: set[str] = set()
        self._closed = False

    @property
    def budget(self) -> ServerBudget:
        """Budget of the client of the current call."""
        return self._budgets.current

    @property
    def has_gpu(self) -> bool:
        """Whether verdicts run on a GPU and can be timed."""
        return self.device != "cpu"

    # -------------------------------------------------------------- asking
    def submit(self, request: JudgeRequest) -> VerdictAnswer:
        """Starts a verdict. Returns state RUNNING, REFUSED or FAILED (for `bench` without a GPU:
        FINISHED). Never raises.
        """
        try:
            problem, source = (
                find_problem(request.problem, self.access),
                read_source(request.source, self.access),
            )
            options = self._options(request)
            return self._begin(request, problem, source, options)
        except (InputError, ProblemError, InfrastructureError, OSError) as error:
            failed = isinstance(error, InfrastructureError | OSError)
            return self._answer(
                state=AnswerState.FAILED if failed else AnswerState.REFUSED,
                question=request.question,
                error=_one_line(error),
            )

    def _begin(
        self, request: JudgeRequest, problem: Problem, source: str, options: Options
    ) -> VerdictAnswer:
        row = StoredVerdict(
            id=uuid.uuid4().hex, created=utc_timestamp(), question=request.question, problem=problem.name,
            problem_hash=problem.hash, candidate_hash=candidate_hash(source), source=source, state=AnswerState.RUNNING,
            server=os.getpid(), client=CLIENT.get(),
        )  # fmt: skip
        # Answered without judging, so the budget is not touched.
        if request.question is Question.BENCH and not self.has_gpu:
            return self._without_gpu(row)
        if not self.budget.take():
            raise InputError(
                "your budget on this server is spent: restart agent mcp with more --verdicts or --seconds"
            )
        try:
            self.history.begin(row)
            self._problems[row.id] = problem
            context = contextvars.copy_context()  # the thread charges this client
            self._running[row.id] = self._pool.submit(
                context.run, self._judge, row, request, problem, options
            )
        except BaseException:
            self.budget.give_back()
            raise
        return self._answer(
            verdict_id=row.id,
            state=AnswerState.RUNNING,
            question=row.question,
            problem=row.problem,
            doing="waiting",
        )

    def _without_gpu(self, row: StoredVerdict) -> VerdictAnswer:
        answer = self._answer(
            verdict_id=row.id, state=AnswerState.FINISHED, question=row.question, problem=row.problem,
            outcome=VerdictOutcome.NEEDS_GPU, explanation=NEEDS_GPU_MESSAGES[row.question],
        )  # fmt: skip
        self._keep(row, answer, report=None)
        return answer

    def _options(self, request: JudgeRequest) -> Options:
        """Returns the judge's options for a request. Raises InputError for an unknown target,
        baseline or rule of own work.
        """
        from kernelwright.agent.runtime.arguments import choose_targets, own_work_mode
        from kernelwright.tools.evaluation.pipeline import Options

        if request.baseline not in BASELINES:
            raise InputError(
                f"unknown baseline {request.baseline!r}: choose {' or '.join(BASELINES)}"
            )
        targets = choose_targets(list(request.targets), self.device)
        timed = self.has_gpu and request.question in (Question.BENCH, Question.PROFILE)
        return Options(
            sizes=request.sizes,
            own_work=own_work_mode(request.own_work),
            targets=() if request.question is Question.INTERPRET else targets,
            profile=timed,
            torch_compile=timed and request.baseline == "compile",
            interpret=False
            if request.question in (Question.COMPILE, Question.PROFILE) and not timed
            else None,
            seed=request.seed,
        )

    # -------------------------------------------------------------- making
    def _judge(
        self, row: StoredVerdict, request: JudgeRequest, problem: Problem, options: Options
    ) -> VerdictAnswer:
        """Makes a verdict and stores the answer. A failure of this machine is an answer, too, and
        costs no budget.
        """
        report = None
        try:
            # These two questions need no GPU.
            on_cpu = request.question in (Question.COMPILE, Question.INTERPRET)
            evaluator = self._evaluator("cpu" if on_cpu else self.device)
            report = evaluator.evaluate(
                problem, row.source, options, progress=lambda step: self._say(row.id, step)
            )
            self.budget.charge(report.seconds)
            self._check_wanted(row.id)
            answer = self._finished(row, request, report)
        except Exception as error:
            self.budget.give_back()
            answer = self._unmade(row, error)
        self._keep(row, answer, report)
        self._doing.pop(row.id, None)
        self._problems.pop(row.id, None)
        return answer

    def _unmade(self, row: StoredVerdict, error: Exception) -> VerdictAnswer:
        """Returns the answer for a verdict that raised. For a cancelled verdict the exception is
        ignored.
        """
        if row.id in self._cancelled:
            error = VerdictCancelled(CANCELLED_MESSAGE)
        elif self._closed:
            # Whatever a verdict raises whose processes are ended under it.
            error = InfrastructureError(SERVER_RESTARTED_MESSAGE)
        elif not isinstance(error, InfrastructureError | ProblemError):
            log.error("a verdict on %s was not made", row.problem, exc_info=error)
        return self._answer(
            verdict_id=row.id,
            state=_state_of(error),
            question=row.question,
            problem=row.problem,
            error=_one_line(error),
        )

    def _finished(self, row: StoredVerdict, request: JudgeRequest, report: Report) -> VerdictAnswer:
        fields = verdict_fields(request.question, report, request.baseline)
        if request.question is Question.PROFILE and not self.has_gpu and report.failure is None:
            fields |= {
                "outcome": VerdictOutcome.NEEDS_GPU,
                "explanation": NEEDS_GPU_MESSAGES[request.question],
            }
        return self._answer(
            verdict_id=row.id,
            state=AnswerState.FINISHED,
            question=row.question,
            problem=row.problem,
            **fields,
        )

    def _keep(self, row: StoredVerdict, answer: VerdictAnswer, report: Report | None) -> None:
        self.history.keep(
            row.with_(
                state=answer.state,
                outcome=answer.outcome,
                explanation=answer.error or answer.explanation,
                speedup=answer.speed.speedup if answer.speed else None,
                answer=answer.model_dump_json(exclude={"budget"}),
                report=report.model_dump_json() if report else "",
            )
        )

    def _say(self, verdict_id: str, step: str) -> None:
        self._check_wanted(verdict_id)
        self._doing[verdict_id] = step

    def _check_wanted(self, verdict_id: str) -> None:
        if verdict_id in self._cancelled:
            raise VerdictCancelled(CANCELLED_MESSAGE)
        if self._closed:
            raise InfrastructureError(SERVER_RESTARTED_MESSAGE)

    def _evaluator(self, device: str) -> Evaluator:
        from kernelwright.tools.evaluation.pipeline import Evaluator

        with self._opening:
            if self._closed:
                raise InfrastructureError(SERVER_RESTARTED_MESSAGE)
            if device not in self._evaluators:
                self._evaluators[device] = Evaluator(device=device, workers=1)
            return self._evaluators[device]

    def warm(self) -> None:
        """Starts the evaluators in the background."""
        from kernelwright.agent.mcp_server.warming import warm

        def prepare() -> None:
            with contextlib.suppress(InfrastructureError):  # the first verdict says it
                for device in dict.fromkeys(("cpu", self.device)):
                    warm(self._evaluator(device))

        threading.Thread(target=prepare, name="mcp-warm", daemon=True).start()

    # -------------------------------------------------------------- answering
    def running(self, verdict_id: str) -> Future[VerdictAnswer] | None:
        """Returns the future of a verdict of this server by its id; None if unknown."""
        return self._running.get(verdict_id)

    def step(self, verdict_id: str) -> str:
        """Returns the current step of a verdict; empty before the first step."""
        return self._doing.get(verdict_id, "")

    def cancel(self, verdict_id: str) -> VerdictAnswer:
        """Stops a running verdict, and returns its state. Never raises."""
        running = self._running.get(verdict_id)
        if running is None or running.done() or self.history.find(verdict_id) is None:
            return self.result(verdict_id)
        self._cancelled.add(verdict_id)
        if running.cancel():  # no thread had begun it
            self._keep_cancelled(verdict_id)
        else:
            grace = threading.Timer(CALL_CANCEL_GRACE_SECONDS, self._end_processes, (verdict_id,))
            grace.daemon = True
            grace.start()
        return self.result(verdict_id)

    def _keep_cancelled(self, verdict_id: str) -> None:
        self._problems.pop(verdict_id, None)
        self.budget.give_back()
        row = self.history.find(verdict_id)
        if row is not None:
            answer = self._answer(
                verdict_id=row.id, state=AnswerState.CANCELLED, question=row.question, problem=row.problem,
                error=CANCELLED_MESSAGE,
            )  # fmt: skip
            self._keep(row, answer, report=None)

    def _end_processes(self, verdict_id: str) -> None:
        """Ends the evaluators' processes under a hanging cancelled verdict, unless another verdict
        uses them.

        The next verdict starts new processes. Another verdict runs in the other thread meanwhile,
        so the delay is short.
        """
        under_way = {name for name, future in self._running.items() if future.running()}
        problem = self._problems.get(verdict_id)
        if verdict_id not in under_way or problem is None:
            return
        uncancelled = under_way - self._cancelled
        if all(self._problems.get(other) != problem for other in uncancelled):
            reference_trials().stop(problem)
        if uncancelled:
            return
        with self._opening:
            evaluators = list(self._evaluators.values())
            self._evaluators.clear()
        for evaluator in evaluators:
            evaluator.close()

    def result(self, verdict_id: str, report: bool = False, source: bool = False) -> VerdictAnswer:
        """Returns the state of a verdict of this or an earlier server, with report and source on
        request. Never raises.
        """
        try:
            row = self.history.find(verdict_id)
        except InfrastructureError as error:
            return self._answer(state=AnswerState.FAILED, error=_one_line(error))
        if row is None:
            return self._answer(
                state=AnswerState.REFUSED,
                error=f"there is no verdict {verdict_id!r}: history lists those that were made",
            )
        texts = {"report": row.report if report else "", "source": row.source if source else ""}
        if row.answer:
            # Stored answers have no budget: the current one is added before the closing brace.
            return VerdictAnswer.model_validate_json(
                row.answer[:-1] + f',"budget":{self.budget.remaining().model_dump_json()}}}'
            ).with_(**texts)
        # The server of this verdict is gone, or an earlier process had the same id as this one.
        if row.lost or (row.server == os.getpid() and row.id not in self._running):
            return self._answer(
                verdict_id=row.id,
                state=AnswerState.FAILED,
                question=row.question,
                problem=row.problem,
                error=SERVER_RESTARTED_MESSAGE,
            )
        return self._answer(
            verdict_id=row.id, state=AnswerState.RUNNING, question=row.question, problem=row.problem,
            doing=self._doing.get(row.id, "waiting"), **texts,
        )  # fmt: skip

    def _answer(self, verdict_id: str | None = None, **fields: Any) -> VerdictAnswer:
        return VerdictAnswer(verdict_id=verdict_id, budget=self.budget.remaining(), **fields)

    def close(self) -> None:
        """Ends every process. Verdicts under way are stored as failed."""
        with self._opening:
            self._closed = True
        for problem in list(self._problems.values()):
            reference_trials().stop(problem)
        for evaluator in self._evaluators.values():
            evaluator.close()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _state_of(error: Exception) -> AnswerState:
    """Returns the state for a verdict that raised this exception."""
    if isinstance(error, VerdictCancelled):
        return AnswerState.CANCELLED
    return AnswerState.REFUSED if isinstance(error, ProblemError) else AnswerState.FAILED


def _one_line(error: BaseException) -> str:
    from kernelwright.agent.runtime.errors import explain

    return " ".join(explain(error)[0].split())

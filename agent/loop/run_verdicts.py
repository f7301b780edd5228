"""The judge of a run: a program that was judged in this run is not judged again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kernelwright.agent.loop.attempts import JudgedAttempt
from kernelwright.agent.loop.search import CandidateSearch
from kernelwright.agent.loop.stopping import Spent
from kernelwright.agent.loop.time_limit import judged_until
from kernelwright.policies.base import Completion, FinishReason, Origin, Policy, ReplyKind
from kernelwright.tools.markdown.fenced_code import answer_of
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Failure, Fault, Report, clean_text
from kernelwright.tools.source import candidate_hash
from kernelwright.tools.verdict_cache import UNCACHED_FAULTS

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Options


class Evaluates(Protocol):
    """Interface of `tools.pipeline.Evaluator`, and of its lane in a batch."""

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """Returns the verdict on one candidate; `progress` is called with each step."""
        ...


class Tunes(Protocol):
    """Interface of the tuner, which answers the turns of TUNE (agent/tuning/turn.py)."""

    def tuned(
        self, problem: Problem, parent: JudgedAttempt, spent: Spent, say: Callable[[str], None]
    ) -> Completion:
        """Returns the parent's program with faster numbers; the parent's program unchanged if
        none are faster.
        """
        ...


class VerdictProvider(Protocol):
    """The source of a run's verdicts: the tools, or stored verdicts."""

    def require_working(self, problem: Problem) -> None:
        """Raises ProblemError if the problem's reference fails; called before the first turn."""
        ...

    def report(
        self, problem: Problem, attempt: JudgedAttempt, earlier: Sequence[JudgedAttempt], say: Callable[[str], None],
        deadline: float | None = None,
    ) -> Report:  # fmt: skip
        """Returns the verdict on an attempt; programs of earlier attempts are not judged again.

        deadline: time of the monotonic clock at which the run ends; raises TimeLimitReached a
        short grace after it.
        """
        ...

    def gpu_seconds(self, report: Report) -> float:
        """Returns the GPU seconds of the verdict, for the budget."""
        ...


@dataclass(frozen=True)
class Participants:
    """The policy, the judge, the search and the tuner of a run."""

    policy: Policy
    judging: VerdictProvider
    search: CandidateSearch | None = None
    """Chooses the next candidate. None: the search of the run's settings, with their goal."""
    tuner: Tunes | None = None
    """Answers the turns of TUNE. None: the policy answers them, as a record of such turns can."""


class RunJudge:
    """Makes verdicts with an evaluator, and repeats none for a program that the run has tried
    before.
    """

    def __init__(self, evaluator: Evaluates, options: Options) -> None:
        self._evaluator, self._options = evaluator, options

    def require_working(self, problem: Problem) -> None:
        """Runs the problem's reference once in a process that can be ended. Raises ProblemError
        if the reference fails.
        """
        from kernelwright.tools.reference_trials.trials import reference_trials

        reference_trials().require_working(problem, train_mode=self._options.train_mode)

    def report(
        self, problem: Problem, attempt: JudgedAttempt, earlier: Sequence[JudgedAttempt], say: Callable[[str], None],
        deadline: float | None = None,
    ) -> Report:  # fmt: skip
        """Judges an attempt; returns the earlier verdict, marked as cached, if the program is
        repeated.
        """
        if (cached := _cached_verdict(attempt, earlier)) is not None:
            return cached

        def judge(options: Options, progress: Callable[[str], None]) -> Report:
            return self._evaluator.evaluate(
                problem, attempt.source or "", options, progress=progress
            )

        return judged_until(deadline, self._options, judge, say)

    def gpu_seconds(self, report: Report) -> float:
        """Returns the GPU seconds of this verdict."""
        if report.cached:
            return 0.0
        correctness = report.correctness.seconds if report.correctness else 0.0
        return correctness + (report.profile.seconds if report.profile else 0.0)


def _cached_verdict(attempt: JudgedAttempt, earlier: Sequence[JudgedAttempt]) -> Report | None:
    """Returns the verdict on an equal program, unless a loaded machine may have caused its fault."""
    same = next((other for other in earlier if other.turn == attempt.repeats), None)
    if same is None or same.report is None:
        return None
    failure = same.report.failure
    if failure and failure.fault in UNCACHED_FAULTS:
        return None
    return same.report.with_(cached=True, seconds=0.0)


def unreadable_report(problem: Problem, completion: Completion) -> Report:
    """Returns the report on a reply without code; no tool is run for such a reply."""
    return Report(
        problem=problem.name,
        problem_hash=problem.hash,
        candidate_hash=candidate_hash(""),
        failure=Failure(fault=Fault.NO_CODE, message=_why_no_code(completion)),
    )


_REPLIES_WITHOUT_CODE = {
    ReplyKind.TEXT: "the reply holds no code",
    ReplyKind.TOOL_CALL: "the reply is a tool call, and no tool is offered: the code must be in the text",
    ReplyKind.REASONING: "the reply holds reasoning alone: the code must be in the answer behind it",
    ReplyKind.REFUSAL: "the model refuses to answer",
    ReplyKind.EMPTY: "the reply is empty",
}


def _why_no_code(completion: Completion) -> str:
    """Returns the reason why a reply holds no code, for the user and for the model."""
    lines = completion.text.strip().splitlines() or [""]
    if completion.origin is Origin.COMPILER and lines[0]:
        return lines[0][:300]  # the compiler says why it drafts nothing
    if completion.finish is FinishReason.LENGTH:
        tokens = completion.usage.completion_tokens
        return f"the reply was cut off after {tokens} tokens, before any code: raise --reply-tokens"
    if completion.finish is FinishReason.FILTERED:
        return "the server withheld the reply (content filter)"
    if completion.kind is ReplyKind.TEXT and not answer_of(completion.text).strip() and lines[0]:
        return _REPLIES_WITHOUT_CODE[ReplyKind.REASONING]
    quoted = f": {clean_text(lines[0], 200)}" if completion.kind is ReplyKind.REFUSAL else ""
    return f"{_REPLIES_WITHOUT_CODE[completion.kind]}{quoted}"

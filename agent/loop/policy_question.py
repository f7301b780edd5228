"""Writes the request of a turn to the policy, and reads the reply."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.agent.loop.attempts import JudgedAttempt, author_in_words
from kernelwright.agent.loop.feedback import write_compact_feedback, write_feedback
from kernelwright.agent.loop.machine import RunState
from kernelwright.agent.loop.search import NextTurn
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Spent, describe_budget_left
from kernelwright.agent.loop.target_facts import describe_target
from kernelwright.agent.prompts import PromptFields, Prompts
from kernelwright.policies.base import (
    Completion,
    FinishReason,
    Message,
    Origin,
    Policy,
    PromptForm,
    Request,
    Role,
)
from kernelwright.policies.inductor.draft import has_split_products, with_fp32_products
from kernelwright.store.models import Action
from kernelwright.tools.faults import ARITHMETIC_FAULTS
from kernelwright.tools.markdown.fenced_code import extract_code
from kernelwright.tools.problem import Problem

WAITING_FOR = {
    Origin.POLICY: "waiting for the model",
    Origin.COMPILER: "drafting (compiler)",
    Origin.FILE: "reading the first candidate",
}
"""Description of a run that waits for a candidate, by the candidate's author."""


class QuestionWriter:
    """Writes the policy's request for a turn.

    Equal turns give equal text, so a turn that is repeated after an interruption has the same
    request.
    """

    def __init__(
        self, problem: Problem, policy: Policy, settings: Settings, trajectory_id: int
    ) -> None:
        self._problem, self._settings, self._trajectory_id = problem, settings, trajectory_id
        self._form = policy.prompt_form
        self._prompts = Prompts(self._form, settings.prompts)
        self._target = describe_target(settings.targets[0], settings.device)

    @property
    def version(self) -> str:
        """Hash of the prompt templates; other templates make another run."""
        return self._prompts.version

    def request(self, plan: NextTurn, attempts: Sequence[JudgedAttempt], spent: Spent) -> Request:
        """Writes the prompt of the next turn, with the sampling that the settings and the
        remaining budget allow.
        """
        turn = len(attempts)
        budgets = self._settings.budgets
        # The reply must fit into the remaining budget of tokens.
        tokens_left = None if budgets.tokens is None else budgets.tokens - spent.tokens
        fields = self._prompt_fields(plan, attempts, describe_budget_left(budgets, spent))
        # A TUNE turn stores a request like every turn, so that it can be replayed.
        tunes = plan.action is Action.TUNE
        return Request(
            messages=_tuning_messages(plan) if tunes else self._prompts.messages(fields),
            sampling=self._settings.sampling(self._form, turn, self._trajectory_id, tokens_left),
            thread=str(self._trajectory_id),
            turn=turn,
            fault=_fault_of(plan.parent),
        )

    def _prompt_fields(
        self, plan: NextTurn, attempts: Sequence[JudgedAttempt], budget: str
    ) -> PromptFields:
        parent = plan.parent
        feedback = ""
        if parent is not None and parent.report is not None:
            if self._form is PromptForm.COMPACT:
                feedback = write_compact_feedback(parent.report)
            else:
                refinements = sum(attempt.action is Action.REFINE for attempt in attempts)
                feedback = write_feedback(
                    parent.report, refinements, parent.origin, _is_tuned(parent, attempts)
                )
        return PromptFields(
            problem=self._judged_problem(),
            action=plan.action,
            target=self._target,
            code=(parent.source or "") if parent else "",
            feedback=feedback,
            notice=notice_of(attempts[-1]) if attempts else "",
            budget=budget,
        )

    def _judged_problem(self) -> Problem:
        """Returns the problem as the judge runs it: in eval mode if its random numbers end there."""
        if self._settings.train_mode:
            return self._problem
        from kernelwright.tools.reference_trials.eval_mode import as_judged

        return as_judged(self._problem).problem

    def read(
        self, candidate_id: int, turn: int, plan: NextTurn, completion: Completion
    ) -> tuple[JudgedAttempt, str | None]:
        """Reads a completion. Returns the attempt and its code (None: the reply holds no code)."""
        source = extract_code(completion.text) or None
        attempt = JudgedAttempt(
            candidate_id=candidate_id,
            turn=turn,
            action=plan.action,
            parent_id=plan.parent.candidate_id if plan.parent else None,
            source=source,
            finish=completion.finish,
            usage=completion.usage,
            policy_seconds=completion.latency,
            origin=completion.origin,
            author=author_in_words(completion, plan.action, plan.parent),
        )
        return attempt, source


def redrafts_in_fp32(state: RunState, last: JudgedAttempt | None) -> bool:
    """Returns whether the next turn is the compiler's draft once more, with fp32 products.

    `DraftedTurn` answers such a turn without the policy.
    """
    failure = last.report.failure if last is not None and last.report is not None else None
    if last is None or failure is None:
        return False
    if state is not RunState.REPAIR or not last.origin.is_draft:
        return False
    if failure.fault not in ARITHMETIC_FAULTS:
        return False
    source = last.source or ""
    return bool(with_fp32_products(source)) or has_split_products(source)


def _fault_of(parent: JudgedAttempt | None) -> str | None:
    failure = parent.report.failure if parent is not None and parent.report is not None else None
    return failure.fault.value if failure is not None else None


def _is_tuned(parent: JudgedAttempt, attempts: Sequence[JudgedAttempt]) -> bool:
    """Returns whether the parent's numbers are the best of a search: of its own, or of its
    child's search.
    """
    by_child = any(a.action is Action.TUNE and a.parent_id == parent.candidate_id for a in attempts)
    return parent.action is Action.TUNE or by_child


def _tuning_messages(plan: NextTurn) -> tuple[Message, ...]:
    """Returns the text stored as the prompt of a TUNE turn; no policy reads it."""
    number = plan.parent.turn + 1 if plan.parent is not None else 0
    return (Message(role=Role.USER, content=f"Tune the numbers of the kernel of turn {number}."),)


def notice_of(last: JudgedAttempt) -> str:
    """Describes the format error of the last reply; empty if there was none."""
    if last.unreadable and last.finish is FinishReason.LENGTH:
        return "Your last reply was cut off before the code ended: answer with the file alone, and shorter."
    if last.source is None:
        failure = last.report.failure if last.report is not None else None
        reason = "" if failure is None else f" ({failure.message})"
        return f"Your last reply held no code{reason}: answer with one whole Python file in one ```python block."
    if last.repeats is not None:
        return (
            f"Your last answer was the same program as at turn {last.repeats + 1}: it was not judged again. Do "
            "something else."
        )
    return ""

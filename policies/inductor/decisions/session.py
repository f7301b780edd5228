"""Asks a sandboxed process (plan_process.py) for drafts and counts of plans. Imports no torch.

with PlanSession(conversation) as session:
    session.default.opened           # the decisions of the default draft
    session.count(plan).facts        # launches, bytes and operations, without a text
    session.lower(plan).draft        # the plan's draft
"""

from __future__ import annotations

from typing import Any, Protocol

from kernelwright.closing_context import ClosingContext
from kernelwright.policies.base import Value
from kernelwright.policies.deadlines import seconds_within
from kernelwright.policies.inductor.decisions.deciding import OpenDecision
from kernelwright.policies.inductor.decisions.plan import Choice, Plan
from kernelwright.policies.inductor.decisions.static_facts import StaticFacts
from kernelwright.policies.inductor.draft import DRAFT_GRACE_SECONDS, Draft, DraftMode

PLAN_PROCESS_ENTRY = "kernelwright.policies.inductor.decisions.plan_process:serve"
"""Entry point (`module:function`) of the sandboxed process."""
PLAN_SECONDS = 60.0
"""Time limit of a further plan."""


class LoweredPlan(Value):
    """Plan with its draft, its counts and its open decisions."""

    plan: Plan = Plan()
    draft: Draft = Draft()
    """The draft; without a source if the plan was counted only."""
    facts: StaticFacts = StaticFacts()
    opened: tuple[OpenDecision, ...] = ()
    """Decisions open under this plan."""
    refused: str = ""
    """Reason for a missing draft or missing counts, on a single line."""
    seconds: float = 0.0

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Legal choices at sites without a choice of this plan."""
        return tuple(
            choice
            for decision in self.opened
            for choice in decision.choices
            if self.plan.alternative_at(choice.decision, choice.site) is None
        )


class Conversation(Protocol):
    """Messages to and from the sandboxed process."""

    def receive(self, seconds: float) -> dict[str, Any]:
        """Returns the next answer; `{"refused": text}` if the process died or exceeded the limit."""

    def ask(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Sends a message and returns its answer."""

    def close(self) -> None:
        """Ends the process."""


class PlanSession(ClosingContext):
    """Lowers plans of a problem. Each plan is lowered once; its answer is stored."""

    def __init__(
        self,
        conversation: Conversation,
        mode: DraftMode,
        seconds: float,
        deadline: float | None = None,
    ) -> None:
        """Waits for the default draft, for at most so many seconds.

        deadline: time of the monotonic clock after which no plan is of use.
        """
        self._conversation, self._mode, self._deadline = conversation, mode, deadline
        self._lowered: dict[tuple[str, bool], LoweredPlan] = {}
        self.count_seconds: list[float] = []
        """Seconds of each count so far."""
        answer = conversation.receive(seconds + DRAFT_GRACE_SECONDS)
        self.default = self._read(Plan(), answer, code=True)
        """The default plan."""

    def lower(self, plan: Plan, seconds: float = PLAN_SECONDS) -> LoweredPlan:
        """Returns a plan with its draft, or with the reason of a refusal."""
        return self._ask(plan, True, seconds)

    def count(self, plan: Plan, seconds: float = PLAN_SECONDS) -> LoweredPlan:
        """Returns a plan with its counts and open decisions, without a draft.

        Code generation is left out: its decision `row` is not open, and a choice without an open
        decision counts as the default. `lower` refuses such a choice.
        """
        return self._lowered.get((str(plan), True)) or self._ask(plan, False, seconds)

    def _ask(self, plan: Plan, code: bool, seconds: float) -> LoweredPlan:
        earlier = self._lowered.get((str(plan), code))
        if earlier is not None:
            return earlier
        if self.default.refused:
            return LoweredPlan(plan=plan, refused=self.default.refused)
        # A plan without an answer at the deadline must not hold the run for PLAN_SECONDS.
        seconds = seconds_within(self._deadline, seconds)
        message = {"plan": str(plan), "code": code, "seconds": seconds}
        answer = self._conversation.ask(message, seconds + DRAFT_GRACE_SECONDS)
        return self._read(plan, answer, code)

    def _read(self, plan: Plan, answer: dict[str, Any], code: bool) -> LoweredPlan:
        fields = {name: answer[name] for name in Draft.model_fields if name in answer}
        source = with_plan_line(fields.get("source", ""), plan)
        draft = Draft.model_validate(
            {**fields, "mode": self._mode, "source": source, "plan": str(plan)}
        )
        lowered = LoweredPlan(
            plan=plan,
            draft=draft,
            facts=StaticFacts.model_validate(answer.get("facts", {})),
            opened=tuple(map(OpenDecision.model_validate, answer.get("opened", ()))),
            refused=draft.refused,
            seconds=draft.seconds,
        )
        self._lowered[str(plan), code] = lowered
        # Counts alone: the seconds of a draft contain its code generation.
        if not code:
            self.count_seconds.append(lowered.seconds)
        return lowered

    def close(self) -> None:
        """Ends the process."""
        self._conversation.close()


PLAN_MARK = "# Decisions: "
"""Beginning of the line of the plan in a draft's head."""


def with_plan_line(source: str, plan: Plan) -> str:
    """Returns a draft with its plan in its head; the text itself for the default plan."""
    if plan.is_default or not source:
        return source
    head, _, body = source.partition("\n")
    return f"{head}\n{PLAN_MARK}{plan}\n{body}"


def without_plan_line(source: str) -> str:
    """Returns a draft without the line of its plan: equal texts are equal drafts."""
    lines = source.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(PLAN_MARK))

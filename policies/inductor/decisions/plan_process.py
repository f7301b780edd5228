"""Sandboxed process: traces a problem once, and lowers the trace for each plan.

It executes the problem's file under the pretended GPU. The first answer is the default draft; each later message
names a plan, and is answered with the plan's draft, or with its counts alone.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Protocol

from kernelwright.policies.draft_channel import DraftChannel
from kernelwright.policies.inductor.attempts import TracedAttempt
from kernelwright.policies.inductor.decisions.plan import Plan
from kernelwright.policies.inductor.process import (
    answered,
    best_attempt,
    lowerings,
    prepare,
    time_limit,
)
from kernelwright.program_arguments import no_program_arguments


class PlanChannel(DraftChannel, Protocol):
    """Channel between the process and the session (decisions/session.py)."""

    def receive(self) -> dict[str, Any]:
        """Returns the next message. Raises EOFError when the session has ended."""


class TracedProblem:
    """A problem, traced with the first plan, and lowered with each."""

    def __init__(self, request: dict[str, Any]) -> None:
        """request: the payload of a draft (policies/inductor/draft.py)."""
        self._source: str = request["source"]
        self._strict = request["mode"] == "strict"
        self._partial: bool = request["partial"]
        self._varied: list[str] = request["varied"]
        self._tf32: bool = request["tf32"]
        self._split: bool = request["split"]
        self._attempt: TracedAttempt | None = None

    def trace(self, seconds: float) -> dict[str, Any]:
        """Traces the problem. Returns the fields of the default plan's LoweredPlan."""

        def work() -> dict[str, Any]:
            with self._limits(seconds):
                # A partial draft has kernels of its own for products (the lowerings of strict
                # drafts), and may leave other operators to torch.
                strict = self._strict and not self._partial
                self._attempt, fields = best_attempt(
                    self._source, strict, self._varied, self._tf32, Plan()
                )
            return fields

        return answered(work, self._source, seconds)

    def lower(self, plan_text: str, code: bool, seconds: float) -> dict[str, Any]:
        """Returns the fields of a plan's LoweredPlan; without a draft if no code is asked for."""

        def work() -> dict[str, Any]:
            assert self._attempt is not None
            plan = Plan.parse(plan_text)
            with self._limits(seconds):
                return self._attempt.lower(plan) if code else self._attempt.count(plan)

        return answered(work, self._source, seconds)

    @contextlib.contextmanager
    def _limits(self, seconds: float) -> Any:
        with lowerings(self._strict, self._split), time_limit(seconds):
            yield


def serve(channel: PlanChannel, payload: dict[str, Any]) -> None:
    """Answers the requests of a session (decisions/session.py) until the session ends."""
    prepare()
    with warnings.catch_warnings(), no_program_arguments():
        warnings.simplefilter("ignore")
        problem = TracedProblem(payload)
        answer = problem.trace(payload["seconds"])
        channel.send(answer)
        while not answer.get("refused"):
            try:
                request = channel.receive()
            except EOFError:
                return
            channel.send(problem.lower(request["plan"], request["code"], request["seconds"]))

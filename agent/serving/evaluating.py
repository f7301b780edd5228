"""Adapts the judge service to the evaluator interface of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelwright.agent.judging.pool import DeviceKind, ignore
from kernelwright.agent.serving.client import JudgeClient
from kernelwright.agent.serving.wire import MAX_TEXT, Outcome, VerdictOptions
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Failure, Fault, Report
from kernelwright.tools.source import candidate_hash

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Options


class ServiceEvaluator:
    """Implements agent.loop.run_verdicts.Evaluates."""

    def __init__(self, client: JudgeClient, device: DeviceKind | None = None) -> None:
        self._client, self._device = client, device

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """Returns the service's verdict, with lost attempts among its warnings. Raises
        ProblemError, InputError and InfrastructureError.
        """
        # The service refuses such a request, which would end a whole batch over one reply.
        if (size := len(source.encode("utf-8", "replace"))) > MAX_TEXT:
            return _too_long(problem, source, size)
        service_fields = service_options(options) if options is not None else {}
        device = self._device.value if self._device else None
        submitted = self._client.submit(problem, source, device=device, **service_fields)
        verdict = self._client.result(submitted, progress or ignore)
        report = verdict.report.with_(problem=problem.name, cached=verdict.known)
        if verdict.attempts == 1:
            return report
        attempts = self._client.status(verdict.verdict_id).attempts
        lost = [
            f"attempt {attempt.number} was lost: {attempt.message}"
            for attempt in attempts
            if attempt.outcome is Outcome.LOST
        ]
        return report.with_(warnings=(*report.warnings, *lost))


def _too_long(problem: Problem, source: str, size: int) -> Report:
    """Returns the report on a candidate that is larger than the service accepts."""
    message = f"the code is {size:,} bytes long; at most {MAX_TEXT:,} are read"
    return Report(
        problem=problem.name,
        problem_hash=problem.hash,
        candidate_hash=candidate_hash(source),
        failure=Failure(fault=Fault.NO_CODE, message=message),
    )


def service_options(options: Options) -> dict[str, Any]:
    """Returns the options of a verdict accepted by the service."""
    return options.model_dump(include=set(VerdictOptions.model_fields))

"""What a client sends, and what it makes of answers: shared by the sync and the async way. Imports no HTTP library."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.agent.serving.wire import (
    Code,
    ErrorBody,
    ProblemReference,
    Score,
    State,
    Status,
    Submission,
    VerdictOptions,
)
from kernelwright.errors import InputError
from kernelwright.tools.faults import InfrastructureError, Value
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import Report

SUBMISSION_SETTINGS = ("force", "priority")
"""Fields of a submission that clients give beside the options of the verdict."""
WAIT_SECONDS = 30.0
"""Seconds that the server waits before it answers one request for a status."""
TIMEOUT_SECONDS = 60.0
"""Seconds without an answer after which a connection is given up: more than WAIT_SECONDS."""
MAX_PAUSE_SECONDS = 30.0
"""Seconds between two tries at most."""


class JudgeServiceError(InfrastructureError):
    """The service cannot be reached, or has no answer; one line that says what to do."""


class VerdictNotInTime(JudgeServiceError):
    """The caller's own time limit has passed; the verdict was withdrawn."""


class Verdict(Value):
    """The service's verdict on one candidate."""

    verdict_id: str
    score: Score
    report: Report
    known: bool = False
    """Whether it had been judged, or was waiting to be, before this submission."""
    attempts: int = 1

    @property
    def correct(self) -> bool:
        """Whether the candidate is correct."""
        return self.report.correct

    @property
    def speedup(self) -> float | None:
        """The speedup over eager, None where nothing was timed."""
        return self.report.speedup


class ServiceBusy(Exception):
    """The service asks to come again later: 429, 503, or no connection."""

    def __init__(self, message: str, seconds: float | None) -> None:
        super().__init__(message)
        self.seconds = seconds


class Deadline:
    """The end of a time limit over several requests."""

    def __init__(self, seconds: float | None) -> None:
        """seconds: from now on; None sets no limit."""
        self.seconds = seconds
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """Seconds that are left, at least 0; infinite where there is no limit."""
        return max(0.0, self._end - time.monotonic())

    def check(self, status: Status) -> None:
        """Raises VerdictNotInTime where no time is left."""
        if self.remaining <= 0:
            activity = status.doing or status.state.value
            raise VerdictNotInTime(
                f"no verdict within {self.seconds:g} s (it was at: {activity}): give a larger timeout, or ask again"
            )


def submission_of(
    problem: str | Path | Problem,
    code: str,
    options: Mapping[str, Any],
    device: str | None,
    group: str | None,
) -> dict[str, Any]:
    """The body of a submission, checked here. A path, or the name of a file that exists, is read and sent as source.

    options: those of the verdict, and `force` and `priority`.
    Raises InputError for an option that there is not, and ProblemError for a file that is no problem.
    """
    if device is not None and device not in list(DeviceKind):
        raise InputError(f"device {device!r}: choose {', '.join(DeviceKind)}")
    settings = {name: options[name] for name in SUBMISSION_SETTINGS if name in options}
    options = {name: value for name, value in options.items() if name not in settings}
    try:
        kind = DeviceKind(device) if device is not None else None
        return Submission(
            problem=_reference(problem),
            candidate=code,
            options=VerdictOptions(**options),
            device=kind,
            group=group,
            **settings,
        ).model_dump(mode="json", exclude_defaults=True)
    except ValidationError as error:
        first = error.errors()[0]
        field_name = ".".join(str(part) for part in first["loc"]) or "the submission"
        raise InputError(f"{field_name}: {first['msg']}") from None


def _reference(problem: str | Path | Problem) -> ProblemReference:
    if isinstance(problem, Problem):
        return ProblemReference(name=problem.name[-200:], source=problem.source)
    if isinstance(problem, Path) or problem.endswith(".py"):
        from kernelwright.agent.problems.finding import find_by_name

        return _reference(find_by_name(problem))
    return ProblemReference(name=problem)


def read_answer(
    status_code: int, body: bytes, retry_after: str | None, method: str, url: str
) -> bytes:
    """The body of an answer that is none of an error.

    Raises Busy where the request is to be repeated, InputError, ProblemError or JudgeServiceError where it is not.
    """
    if status_code < 400:
        return body
    try:
        error = ErrorBody.model_validate_json(body).error
    except ValidationError:
        raise JudgeServiceError(
            f"{method} {url} was answered with {status_code}: is that a judge service?"
        ) from None
    if error.code in (Code.QUEUE_FULL, Code.QUOTA, Code.CLOSING, Code.NO_JUDGES, Code.TIMEOUT):
        raise ServiceBusy(
            error.message, float(retry_after) if retry_after and retry_after.isdigit() else None
        )
    if error.code is Code.UNAUTHORIZED:
        raise InputError(
            "the judge service does not know this token: set KERNELWRIGHT_TOKEN, or give token="
        )
    if error.code in (Code.INVALID, Code.TOO_LARGE, Code.NOT_FOUND, Code.FORBIDDEN):
        raise InputError(f"the judge service says: {error.message}")
    raise JudgeServiceError(f"the judge service says: {error.message}")


def pause_seconds(tries: int, busy: ServiceBusy) -> float:
    """Returns the seconds until the next try: what the service asks for, else more each time; never the same for two
    clients.
    """
    pause = busy.seconds if busy.seconds is not None else min(MAX_PAUSE_SECONDS, 0.2 * 2.0**tries)
    return min(MAX_PAUSE_SECONDS, pause) * random.uniform(0.75, 1.25)


def verdict_of(status: Status) -> Verdict | None:
    """Returns the verdict; None where it has not ended.

    Raises ProblemError where the reference cannot be used, JudgeServiceError where there is no verdict.
    """
    if not status.state.ended:
        return None
    if status.state is State.FINISHED and status.report is not None and status.score is not None:
        return Verdict(
            verdict_id=status.verdict_id,
            score=status.score,
            report=status.report,
            known=status.known,
            attempts=len(status.attempts),
        )
    if status.state is State.CANCELLED:
        raise JudgeServiceError(f"verdict {status.verdict_id} was cancelled: submit it again")
    message = status.error.message if status.error else "no verdict was made"
    if status.error is not None and status.error.code is Code.PROBLEM:
        raise ProblemError(message)
    raise JudgeServiceError(f"the judge service made no verdict: {message}")

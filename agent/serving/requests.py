"""Requests and answers of the clients, synchronous and asynchronous. Imports no HTTP library."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.agent.runtime.field_errors import describe_field_error
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
"""Fields of a submission passed by callers together with the options of the verdict."""
WAIT_SECONDS = 30.0
"""Seconds the server may hold a request for a status."""
TIMEOUT_SECONDS = 60.0
"""Timeout of an HTTP request in seconds; longer than WAIT_SECONDS."""
MAX_PAUSE_SECONDS = 30.0
"""Maximum pause between two tries, in seconds."""


class JudgeServiceError(InfrastructureError):
    """The service is out of reach or has no answer. The message is one line with the remedy."""


class VerdictNotInTime(JudgeServiceError):
    """The caller's time limit has passed; the verdict was withdrawn."""


class Verdict(Value):
    """Verdict of the service on a candidate."""

    verdict_id: str
    score: Score
    report: Report
    known: bool = False
    """Whether the verdict existed or waited before this submission."""
    attempts: int = 1

    @property
    def correct(self) -> bool:
        """Whether the candidate is correct."""
        return self.report.correct

    @property
    def speedup(self) -> float | None:
        """Speedup over eager PyTorch; None if not timed."""
        return self.report.speedup


class ServiceBusy(Exception):
    """The service asks for a later request: 429, 503, or no connection."""

    def __init__(self, message: str, seconds: float | None) -> None:
        super().__init__(message)
        self.seconds = seconds


class Deadline:
    """Time limit over several requests."""

    def __init__(self, seconds: float | None) -> None:
        """seconds: from now on; None sets no limit."""
        self.seconds = seconds
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """Remaining seconds, at least 0; infinite without a limit."""
        return max(0.0, self._end - time.monotonic())

    def check(self, status: Status) -> None:
        """Raises VerdictNotInTime after the deadline."""
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
    """Returns the checked body of a submission. The file of a path or file name is read and sent as
    source.

    options: options of the verdict, and `force` and `priority`. Raises InputError for an unknown
    option, and ProblemError for a file without a problem.
    """
    if device is not None and device not in list(DeviceKind):
        raise InputError(f"device {device!r}: choose {', '.join(DeviceKind)}")
    settings = {name: options[name] for name in SUBMISSION_SETTINGS if name in options}
    options = {name: value for name, value in options.items() if name not in settings}
    try:
        kind = DeviceKind(device) if device is not None else None
        return Submission(
            problem=_reference(problem),
            candidate=sendable_text(code),
            options=VerdictOptions(**options),
            device=kind,
            group=group,
            **settings,
        ).model_dump(mode="json", exclude_defaults=True)
    except ValidationError as error:
        raise InputError(describe_field_error(error.errors()[0], whole="the submission")) from None


def sendable_text(code: str) -> str:
    """Replaces lone surrogates, which a tokenizer can produce and UTF-8 cannot encode."""
    return code.encode("utf-8", "replace").decode() if isinstance(code, str) else code


def bearer_header(token: str | None) -> dict[str, str]:
    """Returns the Authorization header of a token. Raises InputError for a token with other
    characters than printable ASCII.
    """
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()):
        raise InputError("the token holds characters that no header carries: copy it once more")
    return {"Authorization": f"Bearer {token}"}


def _reference(problem: str | Path | Problem) -> ProblemReference:
    if isinstance(problem, Problem):
        return ProblemReference(name=problem.name[-200:], source=problem.source)
    if not isinstance(problem, str | Path):
        raise InputError(f"problem {problem!r}: give a name, the path of a file, or a Problem")
    if isinstance(problem, Path) or problem.endswith(".py"):
        from kernelwright.agent.problems.finding import find_by_name

        return _reference(find_by_name(problem))
    return ProblemReference(name=problem)


def read_answer(
    status_code: int, body: bytes, retry_after: str | None, method: str, url: str
) -> bytes:
    """Returns the body of a successful answer.

    Raises ServiceBusy if the request is to be repeated; otherwise InputError or JudgeServiceError.
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
    """Returns the seconds until the next try: the service's own figure, else exponential backoff
    from 0.2 s. A random factor of 0.75 to 1.25 keeps clients apart.
    """
    pause = busy.seconds if busy.seconds is not None else min(MAX_PAUSE_SECONDS, 0.2 * 2.0**tries)
    return min(MAX_PAUSE_SECONDS, pause) * random.uniform(0.75, 1.25)


def verdict_of(status: Status) -> Verdict | None:
    """Returns the verdict of a status; None before its end.

    Raises ProblemError for an unusable reference, JudgeServiceError for any other missing verdict.
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

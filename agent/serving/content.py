"""Prepares submissions: finds the problem, checks the options, derives the verdict's id from the
content.

The id is a SHA-256 over the hashes of candidate and problem, the problem's name, the options, the
device, the evaluator's environment and, for a client's own reference, the client. Equal submissions
share a verdict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kernelwright.agent.judging.pool import DeviceKind, JudgePool
from kernelwright.agent.problems.forms_of_users.forms import complete_reference
from kernelwright.agent.serving.wire import Code, ProblemReference, Submission, VerdictOptions
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem, ProblemError, check_form
from kernelwright.tools.source import candidate_hash

REFERENCE_REFUSED = (
    "no reference of yours is run here: name a problem of the server, which GET /v1/problems lists (the server was "
    "started with --references refuse, or its token file says `names-only` for you)"
)


@lru_cache(maxsize=1)
def _catalogue_texts() -> frozenset[str]:
    from kernelwright.agent.problems.finding import catalogue

    return frozenset(problem.source for problem in catalogue())


class RequestRefused(Exception):
    """Error answer to a request. retry_after: seconds after which the request may be repeated."""

    def __init__(self, code: Code, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.retry_after = code, message, retry_after


def no_such_verdict(verdict_id: str) -> RequestRefused:
    """Returns the error for an unknown verdict, or one hidden from the client."""
    return RequestRefused(Code.NOT_FOUND, f"there is no verdict {verdict_id[:64]}: submit it first")


class PreparedSubmission(BaseModel):
    """Submission ready for judging."""

    model_config = ConfigDict(frozen=True)

    verdict_id: str
    problem: Problem
    candidate: str
    candidate_hash: str
    options: Options
    device: DeviceKind
    domain: str
    """Client behind the reference; empty for a problem of the server."""
    group: str | None


class Preparing:
    """Prepares submissions under the server's permissions, for the environments of its judges."""

    def __init__(
        self, pool: JudgePool, kernelbench: Path | None, allow_import: Sequence[str],
        may_send_references: Callable[[str], bool] = lambda client: True, has_one_client: bool = False,
    ) -> None:  # fmt: skip
        """may_send_references: whether a client may send references; these run with the rights of
        the server's user. has_one_client: whether all requests come from one client, so no
        reference is another client's.
        """
        self._pool, self._kernelbench, self._allowed = pool, kernelbench, frozenset(allow_import)
        self._may_send_references, self._has_one_client = may_send_references, has_one_client
        self._named = lru_cache(maxsize=1024)(self._find)

    def prepare(self, submission: Submission, client: str) -> PreparedSubmission:
        """Returns the submission with problem, options and verdict id. Raises RequestRefused.

        Clients do not share verdicts on references of their own: the reference runs in the process
        of the comparison.
        """
        device = submission.device or self._pool.devices[0]
        if device not in self._pool.devices:
            has = " and ".join(self._pool.devices)
            raise RequestRefused(Code.INVALID, f"device {device}: this server judges on {has} only")
        problem = self.problem(submission.problem)
        is_own = self._is_own(problem)
        if not is_own and not self._may_send_references(client):
            raise RequestRefused(Code.FORBIDDEN, REFERENCE_REFUSED)
        domain = "" if is_own or self._has_one_client else client
        options = self._options(submission.options, device)
        digest = candidate_hash(submission.candidate)
        environment = self._pool.environment(device).model_dump_json(exclude={"host"})
        parts = [
            digest,
            problem.hash,
            problem.name,
            options.model_dump_json(),
            device.value,
            environment,
        ]
        parts += [domain] if domain else []
        return PreparedSubmission(
            verdict_id=hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32],
            problem=problem,
            candidate=submission.candidate,
            candidate_hash=digest,
            options=options,
            device=device,
            domain=domain,
            group=submission.group,
        )

    def problem(self, requested: ProblemReference) -> Problem:
        """Returns the problem by source or by name; a name is never a path. Raises RequestRefused."""
        try:
            if requested.source is not None:
                source = complete_reference(requested.source)
                check_form(source)
                return Problem(name=requested.name.strip() or "problem", source=source)
            named = self._named(requested.name.strip())
            if named.taken_for:
                raise ProblemError(
                    f"there is no problem {named.taken_for!r}; the nearest is {named.name!r}: send a name of "
                    "GET /v1/problems, or a source"
                )
            return named
        except ProblemError as error:
            raise RequestRefused(Code.INVALID, " ".join(str(error).split())) from None

    def _is_own(self, problem: Problem) -> bool:
        """Returns whether the text equals a problem of this server, whoever sends the text."""
        if problem.source in _catalogue_texts():
            return True
        try:
            return self._named(problem.name).source == problem.source
        except ProblemError:
            return False

    def _find(self, name: str) -> Problem:
        from kernelwright.agent.problems.finding import find_by_name

        if name.startswith("kernelbench:") and self._kernelbench is not None:
            return find_by_name(name, kernelbench=self._kernelbench)
        words = name.removeprefix("catalogue:")
        if not words or any(sign in words for sign in "/\\:.~"):
            raise ProblemError(
                f"{name!r} is no name of the catalogue: GET /v1/problems lists them; send any other problem's source"
            )
        return find_by_name("catalogue:" + words)

    def _options(self, requested: VerdictOptions, device: DeviceKind) -> Options:
        refused = sorted(set(requested.allow_import) - self._allowed)
        if refused:
            raise RequestRefused(
                Code.INVALID,
                f"allow_import {', '.join(refused)}: this server was not started with it",
            )
        if device is DeviceKind.CPU and (requested.ncu or requested.sanitizer):
            raise RequestRefused(
                Code.INVALID,
                "ncu and sanitizer need a GPU: leave them out, or ask for the device cuda",
            )
        targets = (self._pool.target(device),) if requested.targets is None else requested.targets
        return Options(targets=targets, **requested.model_dump(exclude={"targets"}))

"""Shared parts of all routes, and the client of a request."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from anyio import CapacityLimiter
from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from kernelwright.agent.serving.changes import Changes
from kernelwright.agent.serving.content import RequestRefused, no_such_verdict
from kernelwright.agent.serving.retention import Retention
from kernelwright.agent.serving.routes.admission import NO_TOKEN_MESSAGE
from kernelwright.agent.serving.routes.snapshots import Snapshots
from kernelwright.agent.serving.routes.tokens import Right, Tokens
from kernelwright.agent.serving.service import JudgeService
from kernelwright.agent.serving.statistics.metrics import ServiceMetrics
from kernelwright.agent.serving.statistics.record_statistics import RecordStatistics
from kernelwright.agent.serving.statistics.trace_export import TraceExport
from kernelwright.agent.serving.statistics.trajectories import Trajectories
from kernelwright.agent.serving.wire import Code, ErrorBody

MAX_PARSING_THREADS = 2
"""Number of threads that parse submissions at once. Each holds the interpreter's lock most of the
time, which delays every other answer.
"""
_BEARER = HTTPBearer(auto_error=False, description="A token of the server's token file.")


@dataclass(frozen=True)
class ServerContext:
    """Parts of a server used by its routes."""

    service: JudgeService
    tokens: Tokens
    trajectories: Trajectories
    metrics: ServiceMetrics
    statistics: RecordStatistics
    is_private: bool = False
    """Whether a client sees only the verdicts of its own submissions."""
    retention: Retention | None = None
    trace_export: TraceExport | None = None
    changes: Changes = field(default_factory=Changes)
    snapshots: Snapshots = field(default_factory=Snapshots)
    parsing_threads: CapacityLimiter = field(
        default_factory=partial(CapacityLimiter, MAX_PARSING_THREADS)
    )
    started: float = field(default_factory=time.time)

    def sees_all(self, client: str) -> bool:
        """Whether a client sees every verdict."""
        return not self.is_private or self.tokens.has(client, Right.ADMIN)

    def check_sees_all(self, client: str) -> None:
        """Raises RequestRefused on a private server unless the client has `admin`."""
        if not self.sees_all(client):
            raise RequestRefused(
                Code.FORBIDDEN, "this server is private: only a client with `admin` may see this"
            )

    def may_see(self, client: str, verdict_id: str) -> bool:
        """Whether a client may see this verdict."""
        return self.sees_all(client) or self.service.record.is_submitter(client, verdict_id)

    def check_visible(self, client: str, verdict_id: str) -> None:
        """Raises RequestRefused for a verdict hidden from the client, with the error of an unknown
        verdict.
        """
        if not self.may_see(client, verdict_id):
            raise no_such_verdict(verdict_id)


async def _context(request: Request) -> ServerContext:
    context = request.app.state.context
    assert isinstance(context, ServerContext)
    return context


ContextDependency = Annotated[ServerContext, Depends(_context)]


async def _client(
    request: Request,
    context: ContextDependency,
    _: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
) -> str:
    client_name = context.tokens.client(request.headers.get("authorization"))
    if client_name is None:
        raise RequestRefused(Code.UNAUTHORIZED, NO_TOKEN_MESSAGE)
    return client_name


Client = Annotated[str, Depends(_client)]
"""Name of the requesting client."""


def errors(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Returns a route's possible error statuses for the OpenAPI schema."""
    return {status: {"model": ErrorBody} for status in statuses}

"""The parts of the server that every route uses, and the client of a request."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from kernelwright.agent.serving.changes import Changes
from kernelwright.agent.serving.content import RequestRefused
from kernelwright.agent.serving.routes.admission import NO_TOKEN_MESSAGE
from kernelwright.agent.serving.routes.tokens import Tokens
from kernelwright.agent.serving.service import JudgeService
from kernelwright.agent.serving.statistics.metrics import ServiceMetrics
from kernelwright.agent.serving.statistics.trajectories import Trajectories
from kernelwright.agent.serving.wire import Code, ErrorBody

_BEARER = HTTPBearer(auto_error=False, description="A token of the server's token file.")


@dataclass(frozen=True)
class Context:
    """One server's parts."""

    service: JudgeService
    tokens: Tokens
    trajectories: Trajectories
    metrics: ServiceMetrics
    changes: Changes = field(default_factory=Changes)
    started: float = field(default_factory=time.time)


async def _context(request: Request) -> Context:
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


ContextDependency = Annotated[Context, Depends(_context)]


async def _client(
    request: Request, here: ContextDependency, _: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
) -> str:
    found = here.tokens.client(request.headers.get("authorization"))
    if found is None:
        raise RequestRefused(Code.UNAUTHORIZED, NO_TOKEN_MESSAGE)
    return found


Client = Annotated[str, Depends(_client)]
"""The name of the client that asks."""


def errors(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Returns, for the schema, the statuses of errors that a route may answer with."""
    return {status: {"model": ErrorBody} for status in statuses}

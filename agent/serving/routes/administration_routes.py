"""Verdicts deleted, or judged again, after an incident: by client, problem and time. For clients with `admin`."""

from __future__ import annotations

from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query

from kernelwright.agent.serving.content import RequestRefused
from kernelwright.agent.serving.routes.context import Client, ContextDependency, errors
from kernelwright.agent.serving.routes.tokens import Right
from kernelwright.agent.serving.service_wire import VerdictCount
from kernelwright.agent.serving.wire import Code, Moment, WireValue

router = APIRouter(prefix="/v1/verdicts", tags=["administration"])


class VerdictFilter(WireValue):
    """Filter for ended verdicts; all given parts must hold."""

    client: Annotated[str | None, Query(max_length=64)] = None
    """Client among the submitters."""
    problem: Annotated[str | None, Query(max_length=200)] = None
    ended_after: Moment | None = None
    """Seconds since 1970."""


async def _administrator(client: Client, context: ContextDependency) -> None:
    if not context.tokens.has(client, Right.ADMIN):
        raise RequestRefused(
            Code.FORBIDDEN, "only a client whose line of the token file says `admin` may do this"
        )


async def _filter(
    chosen: Annotated[VerdictFilter, Query()], _: Annotated[None, Depends(_administrator)]
) -> VerdictFilter:
    if chosen == VerdictFilter():
        raise RequestRefused(
            Code.INVALID,
            "say which verdicts: client=, problem= or ended_after= (seconds since 1970)",
        )
    return chosen


Chosen = Annotated[VerdictFilter, Depends(_filter)]


@router.delete("", responses=errors(401, 403, 422))
async def delete(chosen: Chosen, context: ContextDependency) -> VerdictCount:
    """Deletes ended verdicts with their attempts and submissions."""
    count = await run_sync(
        context.service.deletion.delete, chosen.client, chosen.problem, chosen.ended_after
    )
    return VerdictCount(verdicts=count)


@router.post("/again", responses=errors(401, 403, 422))
async def judge_again(chosen: Chosen, context: ContextDependency) -> VerdictCount:
    """Queues ended verdicts again under their ids."""
    count = await run_sync(
        context.service.judge_again, chosen.client, chosen.problem, chosen.ended_after
    )
    return VerdictCount(verdicts=count)

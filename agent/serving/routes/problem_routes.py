"""Problems of the server's catalogue."""

from __future__ import annotations

from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path

from kernelwright.agent.serving.content import RequestRefused
from kernelwright.agent.serving.routes.context import Client, ContextDependency, errors
from kernelwright.agent.serving.service_wire import ProblemEntry, ProblemList
from kernelwright.agent.serving.wire import Code, ProblemReference
from kernelwright.tools.problem import Problem

router = APIRouter(prefix="/v1/problems", tags=["problems"])


@router.get("", responses=errors(401))
async def problems(client: Client) -> ProblemList:
    """The catalogue, without sources."""
    from kernelwright.agent.problems.finding import catalogue

    return ProblemList(
        problems=tuple(_entry(problem, None) for problem in await run_sync(catalogue))
    )


@router.get("/{name}", responses=errors(401, 404, 422))
async def problem(
    name: Annotated[str, Path(min_length=1, max_length=200)],
    client: Client,
    context: ContextDependency,
) -> ProblemEntry:
    """Returns a problem with its source; a name may be inexact."""
    if not name.strip() or "\0" in name:
        raise RequestRefused(Code.NOT_FOUND, "an empty name: GET /v1/problems lists the catalogue")
    try:
        problem = await run_sync(context.service.preparing.problem, ProblemReference(name=name))
    except RequestRefused as refused:
        raise RequestRefused(Code.NOT_FOUND, refused.message) from None
    return _entry(problem, problem.source)


def _entry(problem: Problem, source: str | None) -> ProblemEntry:
    return ProblemEntry(
        name=problem.name,
        title=problem.title,
        family=problem.family,
        suite=problem.suite,
        source=source,
    )

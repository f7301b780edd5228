"""Submit, follow, cancel."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Path, Query, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from kernelwright.agent.serving.changes import wait_for
from kernelwright.agent.serving.content import RequestRefused
from kernelwright.agent.serving.routes.body_structure import StructureBoundRoute
from kernelwright.agent.serving.routes.context import (
    Client,
    ContextDependency,
    ServerContext,
    errors,
)
from kernelwright.agent.serving.routes.tokens import Right
from kernelwright.agent.serving.wire import (
    MAX_WAIT,
    BatchAnswer,
    BatchEntry,
    BatchOfSubmissions,
    Code,
    Error,
    State,
    Status,
    Submission,
    VerdictIds,
    VerdictList,
)

router = APIRouter(prefix="/v1", tags=["verdicts"], route_class=StructureBoundRoute)
SMALL_SUBMISSION_CHARACTERS = 8 * 1024
"""Size of a submission, in characters, up to which the event loop handles it directly: a kernel
takes a millisecond, a text of short statements only (the largest syntax tree) 60. Larger
submissions go to a thread.
"""
STREAM_SECONDS = 5
"""Seconds until a client with too many event streams may ask for another."""
POSITION_SECONDS = 1.0
"""Seconds between two checks of a waiting verdict's position."""
Id = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="32 hex digits.")]


@router.post(
    "/verdicts",
    status_code=202,
    response_model=Status,
    responses={200: {"model": Status}, **errors(400, 401, 408, 413, 422, 429, 503)},
)
async def submit(submission: Submission, client: Client, context: ContextDependency) -> Response:
    """Submits a candidate. Answers 202 for a waiting or running verdict, 200 for a known one."""
    began = time.perf_counter()
    if (
        len(submission.candidate) + len(submission.problem.source or "")
        <= SMALL_SUBMISSION_CHARACTERS
    ):
        status = context.service.submit(client, submission)
    else:
        status = await _submit_in_thread(context, client, submission)
    context.metrics.enqueue.observe(time.perf_counter() - began)
    headers = {"Location": f"/v1/verdicts/{status.verdict_id}"}
    return _json(status, 200 if status.state.ended else 202, headers)


async def _submit_in_thread(context: ServerContext, client: str, submission: Submission) -> Status:
    return await run_sync(
        context.service.submit, client, submission, limiter=context.parsing_threads
    )


def _json(status: Status, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Returns a response with the value's JSON. FastAPI would validate and serialise the value a
    second time.
    """
    return Response(status.model_dump_json(), code, headers, "application/json")


@router.post("/batches", responses=errors(400, 401, 408, 413, 422, 503))
async def submit_batch(
    batch: BatchOfSubmissions, client: Client, context: ContextDependency
) -> BatchAnswer:
    """Submits several; each has its own status or error, in the order of the submissions."""
    entries, waits = [], []
    for submission in batch.submissions:
        try:
            entries.append(BatchEntry(status=await _submit_in_thread(context, client, submission)))
        except RequestRefused as refused:
            # The whole server is stopping, which concerns every entry alike.
            if refused.code is Code.CLOSING:
                raise
            context.metrics.refused(refused.code.value)
            entries.append(BatchEntry(error=Error(code=refused.code, message=refused.message)))
            waits += [refused.retry_after] if refused.retry_after is not None else []
    return BatchAnswer(verdicts=tuple(entries), retry_after=max(waits, default=None))


@router.post("/verdicts/wait", responses=errors(400, 401, 404, 408, 422))
async def wait_for_several(
    query: VerdictIds,
    client: Client,
    context: ContextDependency,
    wait: Annotated[float, Query(ge=0.0, le=MAX_WAIT, description="Seconds.")] = MAX_WAIT,
) -> VerdictList:
    """The statuses of several verdicts, with reports, as soon as all have ended, or after so many seconds."""
    for verdict_id in query.verdict_ids:
        context.check_visible(client, verdict_id)
    deadline = time.monotonic() + wait
    for verdict_id in dict.fromkeys(query.verdict_ids):
        await _until_ended(context, verdict_id, deadline)
    return await run_sync(_statuses, context, client, query.verdict_ids)


def _statuses(context: ServerContext, client: str, verdict_ids: Sequence[str]) -> VerdictList:
    return VerdictList(
        verdicts=tuple(context.service.status(client, verdict_id) for verdict_id in verdict_ids)
    )


async def _until_ended(context: ServerContext, verdict_id: str, deadline: float) -> None:
    """Returns when a verdict has ended, at the deadline, or when the server is stopped."""
    with context.changes.of(verdict_id) as changed:
        while True:
            changed.clear()
            remembered = context.service.record.find(verdict_id)
            remaining = deadline - time.monotonic()
            if (
                remembered is None
                or remembered.state.ended
                or remaining <= 0
                or context.changes.closing
            ):
                return
            await wait_for(changed, remaining)


@router.get("/verdicts/{verdict_id}", response_model=Status, responses=errors(401, 404, 422))
async def status(
    verdict_id: Id,
    client: Client,
    context: ContextDependency,
    wait: Annotated[float, Query(ge=0.0, le=MAX_WAIT, description="Seconds.")] = 0.0,
) -> Response:
    """Returns the status of a verdict; with `wait`, at its end or after this many seconds."""
    context.check_visible(client, verdict_id)
    await _until_ended(context, verdict_id, time.monotonic() + wait)
    return _json(context.service.status(client, verdict_id))


@router.post("/verdicts/{verdict_id}/again", responses=errors(401, 403, 404, 422, 429))
async def judge_again(verdict_id: Id, client: Client, context: ContextDependency) -> Status:
    """Queues an ended verdict again under its id; open to its submitters and to `admin`."""
    context.check_visible(client, verdict_id)
    if not context.tokens.has(client, Right.ADMIN) and not context.service.record.is_submitter(
        client, verdict_id
    ):
        context.service.status(client, verdict_id, with_report=False)
        raise RequestRefused(
            Code.FORBIDDEN,
            "only a client that submitted this verdict, or one with `admin`, may do this",
        )
    return await run_sync(context.service.judge_one_again, client, verdict_id)


@router.delete("/verdicts/{verdict_id}", responses=errors(401, 404, 422))
async def cancel(verdict_id: Id, client: Client, context: ContextDependency) -> Status:
    """Withdraws the client's interest; a verdict without interested clients is not judged."""
    context.check_visible(client, verdict_id)
    return await run_sync(context.service.cancel, client, verdict_id)


async def _counted(
    verdict_id: Id, client: Client, context: ContextDependency
) -> AsyncIterator[str]:
    """Checks the verdict and the number of streams before a stream starts: 404 for an unknown
    verdict, 429 above the limit.

    A dependency, so the answer can still be an error. The stream counts from here to its end, so
    streams opened at the same time are counted, too.
    """
    context.check_visible(client, verdict_id)
    context.service.status(client, verdict_id, with_report=False)
    if context.changes.streams[client] >= (most := context.service.limits.client_streams):
        why = f"{most} streams of yours are open: close some, or ask again in {STREAM_SECONDS} s"
        raise RequestRefused(Code.QUOTA, why, STREAM_SECONDS)
    with context.changes.stream(client):
        yield verdict_id


@router.get(
    "/verdicts/{verdict_id}/events",
    response_class=EventSourceResponse,
    responses=errors(401, 404, 422, 429),
)
async def events(
    verdict_id: Annotated[str, Depends(_counted)], client: Client, context: ContextDependency
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events until the verdict has ended: status, progress, and end with the report."""
    last_status: Status | None = None
    doing, began = "", time.monotonic()
    with context.changes.of(verdict_id) as changed:
        while not context.changes.closing:
            changed.clear()
            now = context.service.status(client, verdict_id, with_report=False)
            if now.state.ended:
                full = await run_sync(context.service.status, client, verdict_id)
                yield ServerSentEvent(event="end", raw_data=full.model_dump_json())
                return
            if last_status is None or (now.state, now.position) != (
                last_status.state,
                last_status.position,
            ):
                last_status = now
                yield ServerSentEvent(event="status", raw_data=now.model_dump_json())
            if now.doing and now.doing != doing:
                doing = now.doing
                yield ServerSentEvent(
                    event="progress",
                    data={"doing": doing, "seconds": round(time.monotonic() - began, 3)},
                )
            await wait_for(changed, POSITION_SECONDS if now.state is State.QUEUED else MAX_WAIT)

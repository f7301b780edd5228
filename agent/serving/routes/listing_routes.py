"""Lists of verdicts as JSON and CSV, and the texts of a verdict."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from functools import partial
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from kernelwright.agent.serving.routes.context import (
    Client,
    ContextDependency,
    ServerContext,
    errors,
)
from kernelwright.agent.serving.routes.verdict_routes import Id
from kernelwright.agent.serving.verdict_search import (
    MAX_LISTED,
    VerdictQuery,
    find_verdicts,
    submitters,
)
from kernelwright.agent.serving.wire import Status, VerdictList, VerdictSource

router = APIRouter(prefix="/v1", tags=["verdicts"])
MAX_CSV_ROWS = 100_000
"""Maximum number of rows in a CSV file, newest verdicts first."""
VERDICT_CSV_COLUMNS = (
    "verdict_id", "problem", "state", "device", "submitted", "started", "ended", "clients", "groups", "ended_at",
    "correct", "fault", "gate", "speedup", "speedup_low", "compile_speedup", "speed_of_light", "milliseconds", "share",
    "checks_passed", "checks_made", "mask", "error", "explanation",
)  # fmt: skip
Asked = Annotated[VerdictQuery, Query()]


@router.get("/verdicts", response_model=VerdictList, responses=errors(401, 422))
async def newest(
    request: Request, query: Asked, client: Client, context: ContextDependency
) -> Response:
    """Returns the verdicts of the query, newest first, without their reports."""
    return await context.snapshots.answer(request, client, partial(_json, context, client, query))


def _json(context: ServerContext, client: str, query: VerdictQuery) -> bytes:
    return _page(context, client, query).model_dump_json().encode()


def _page(context: ServerContext, client: str, query: VerdictQuery) -> VerdictList:
    viewer = None if context.sees_all(client) else client
    rows = find_verdicts(context.service.record, query, viewer)
    verdict_ids = [row.id for row in rows]
    attempts = context.service.record.attempts(verdict_ids)
    people = submitters(context.service.record, verdict_ids, viewer)
    return VerdictList(
        verdicts=tuple(
            context.service.status_of(row, client, attempts[row.id]).model_copy(
                update=people[row.id]._asdict()
            )
            for row in rows
        ),
        next=rows[-1].sequence if len(rows) == query.limit else None,
    )


@router.get("/verdicts.csv", response_class=StreamingResponse, responses=errors(401, 422))
async def newest_as_csv(
    query: Asked, client: Client, context: ContextDependency
) -> StreamingResponse:
    """The same verdicts as CSV, all pages together."""
    name = {"Content-Disposition": 'attachment; filename="verdicts.csv"'}
    return StreamingResponse(
        _csv(context, client, query), media_type="text/csv; charset=utf-8", headers=name
    )


def _csv(context: ServerContext, client: str, query: VerdictQuery) -> Iterator[str]:
    yield _csv_line(VERDICT_CSV_COLUMNS)
    count, before = 0, query.before
    while count < MAX_CSV_ROWS:
        page = _page(
            context, client, query.model_copy(update={"before": before, "limit": MAX_LISTED})
        )
        yield "".join(_csv_line(_cells(status)) for status in page.verdicts)
        count, before = count + len(page.verdicts), page.next
        if before is None:
            return


def _cells(status: Status) -> list[object]:
    """Returns the cells of a verdict, in the order of VERDICT_CSV_COLUMNS."""
    values = status.model_dump(mode="json", exclude={"score", "error", "report"})
    values |= status.score.model_dump(mode="json") if status.score is not None else {}
    values |= {"error": status.error.message} if status.error is not None else {}
    values |= {"clients": " ".join(status.clients), "groups": " ".join(status.groups)}
    return [_plain_text(values.get(column)) for column in VERDICT_CSV_COLUMNS]


def _plain_text(value: object) -> object:
    """Quotes a text that a spreadsheet would run as a formula. Clients choose the names of problems
    and groups.
    """
    return (
        f"'{value}"
        if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
        else value
    )


def _csv_line(cells: tuple[object, ...] | list[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()


@router.get("/verdicts/{verdict_id}/source", responses=errors(401, 404, 422))
async def source(verdict_id: Id, client: Client, context: ContextDependency) -> VerdictSource:
    """The candidate, the reference and the options of a verdict."""
    context.check_visible(client, verdict_id)
    context.service.status(client, verdict_id, with_report=False)
    return await run_sync(_source, context, client, verdict_id)


def _source(context: ServerContext, client: str, verdict_id: str) -> VerdictSource:
    texts = context.service.record.texts(verdict_id)
    people = submitters(
        context.service.record, [verdict_id], None if context.sees_all(client) else client
    )
    return VerdictSource(
        verdict_id=verdict_id, candidate=texts.candidate, problem=json.loads(texts.problem)["source"],
        options=json.loads(texts.options), **people[verdict_id]._asdict(),
    )  # fmt: skip

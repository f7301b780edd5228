"""The FastAPI application of the judge service: routes, body limits, errors as JSON (docs/reference/service.md)."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from kernelwright.agent.runtime.field_errors import describe_field_error
from kernelwright.agent.serving.content import RequestRefused
from kernelwright.agent.serving.routes import (
    administration_routes,
    listing_routes,
    problem_routes,
    state_routes,
    verdict_routes,
)
from kernelwright.agent.serving.routes.admission import AdmissionMiddleware
from kernelwright.agent.serving.routes.connections import BODY_SECONDS, BodyLimits
from kernelwright.agent.serving.routes.context import ServerContext
from kernelwright.agent.serving.service import JudgeService
from kernelwright.agent.serving.wire import Code, Error, ErrorBody, ProblemReference, Submission
from kernelwright.tools.hardware.machine_info import version

WARMING_PROBLEM = "fused_silu"
"""Catalogue problem prepared by a server before the first request."""
BODY_BYTES = 2**20
"""Maximum size of a request's body, in bytes."""
MAX_BATCH_BODY_BYTES = 16 * 2**20
"""Maximum size of the body of a batch, in bytes."""
STATUS_OF_CODE = {
    Code.UNAUTHORIZED: 401, Code.FORBIDDEN: 403, Code.TIMEOUT: 408, Code.TOO_LARGE: 413, Code.INVALID: 422,
    Code.NOT_FOUND: 404,
    Code.QUEUE_FULL: 429, Code.QUOTA: 429, Code.CLOSING: 503, Code.NO_JUDGES: 503,
}  # fmt: skip
UNREADABLE_MESSAGE = (
    "the body cannot be read: send JSON in UTF-8, not compressed, and not nested deeply"
)
MESSAGE_OF_STATUS = {
    400: UNREADABLE_MESSAGE,
    404: "there is no such route: GET /openapi.json lists them",
    405: "this route takes other methods, which the header Allow names",
}
"""Messages in place of the framework's, by status."""
CODE_OF_STATUS = {
    401: Code.UNAUTHORIZED,
    404: Code.NOT_FOUND,
    405: Code.METHOD,
    408: Code.TIMEOUT,
    413: Code.TOO_LARGE,
}


def make_app(context: ServerContext, body_seconds: float = BODY_SECONDS) -> FastAPI:
    """Returns the ASGI application. Its lifespan starts and closes the service."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        context.changes.attach()
        context.service.changed = context.changes.tell
        if context.trace_export is not None:
            context.service.ended = context.trace_export.add
            context.trace_export.start()
        await run_sync(context.service.start)
        if context.retention is not None:
            context.retention.start()
        await run_sync(_warm, context.service)
        await _first_request(app)
        _keep_what_is_there()
        try:
            yield
        finally:
            context.changes.close()
            if context.retention is not None:
                await run_sync(context.retention.close)
            if context.trace_export is not None:
                await run_sync(context.trace_export.close)
            await run_sync(context.statistics.close)
            await run_sync(context.service.close)

    app = FastAPI(
        title="Kernelwright judge", version=version("kernelwright") or "(not installed)", lifespan=lifespan,
        docs_url=None, redoc_url=None, redirect_slashes=False,
    )  # fmt: skip
    app.state.context = context
    for routes in (
        administration_routes,
        listing_routes,
        verdict_routes,
        problem_routes,
        state_routes,
    ):
        app.include_router(routes.router)
    app.add_middleware(
        BodyLimits,
        seconds=body_seconds,
        sizes={"/v1/batches": MAX_BATCH_BODY_BYTES},
        size=BODY_BYTES,
    )
    app.add_middleware(
        AdmissionMiddleware, client_of=context.tokens.client, needs_token=context.tokens.needed,
        answer=lambda refused: _refusal(context, refused),
    )  # fmt: skip
    app.add_exception_handler(RequestRefused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _internal)
    return app


def _warm(service: JudgeService) -> None:
    """Loads everything the first submission would wait for: modules, the catalogue, the SQL
    statements of the record.
    """
    candidate = "import triton\nimport triton.language as tl\n"
    submission = Submission(problem=ProblemReference(name=WARMING_PROBLEM), candidate=candidate)
    service.preparing.prepare(submission, client="")
    service.record.find(WARMING_PROBLEM)
    service.record.attempts([WARMING_PROBLEM])


def _keep_what_is_there() -> None:
    """Modules and routes live as long as the server does: a full pass of the garbage collector over them, for which
    every answer waits, takes a twentieth of a second.
    """
    gc.collect()
    gc.freeze()


async def _first_request(app: FastAPI) -> None:
    """Sends a request to the own application: FastAPI builds its routes at the first match, which
    takes a tenth of a second.
    """
    path = "/v1/health"
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(b"host", b"localhost")], "client": None, "server": None,
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: Any) -> None: ...

    await app(scope, receive, send)


def _answer(
    status: int, code: Code, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    body = ErrorBody(error=Error(code=code, message=message))
    return JSONResponse(body.model_dump(mode="json"), status, headers=headers)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestRefused)
    return _refusal(request.app.state.context, error)


def _refusal(context: ServerContext, error: RequestRefused) -> JSONResponse:
    context.metrics.refused(error.code.value)
    headers = {"WWW-Authenticate": "Bearer"} if error.code is Code.UNAUTHORIZED else {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return _answer(STATUS_OF_CODE[error.code], error.code, error.message, headers)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Returns the answer 422 with the name of the first invalid field, without the sent value."""
    assert isinstance(error, RequestValidationError)
    request.app.state.context.metrics.refused(Code.INVALID.value)
    first = error.errors()[0]
    if first["loc"] == ("body",) and not _says_json(request):
        return _answer(
            422,
            Code.INVALID,
            "the body was not read: send it with the header Content-Type: application/json",
        )
    message = describe_field_error(first, whole="the body", outer_parts=1)
    return _answer(422, Code.INVALID, message)


def _says_json(request: Request) -> bool:
    """Returns whether the body is declared as JSON. A form on a page of another site cannot declare
    JSON.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = CODE_OF_STATUS.get(error.status_code, Code.INVALID)
    message = MESSAGE_OF_STATUS.get(error.status_code) or str(error.detail)
    request.app.state.context.metrics.refused(code.value)
    return _answer(error.status_code, code, message, dict(error.headers or {}))


async def _gone(request: Request, error: Exception) -> Response:
    """Ends a request whose client disconnected within its body, without a traceback in the log."""
    return Response(status_code=400)


async def _internal(request: Request, error: Exception) -> JSONResponse:
    """The traceback goes to the log; the answer has none."""
    return _answer(500, Code.INTERNAL, f"internal error, please report it: {type(error).__name__}")

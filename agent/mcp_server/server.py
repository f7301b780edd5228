"""MCP server with its transports: stdio for one local client, streamable HTTP for many clients."""

from __future__ import annotations

import atexit
import logging
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult

from kernelwright.agent.mcp_server.answers import ToolAnswer
from kernelwright.agent.mcp_server.budget import CLIENT
from kernelwright.agent.mcp_server.judging import ServerJudge
from kernelwright.agent.mcp_server.tools import PROGRESS, Tools, tool_result
from kernelwright.agent.runtime.field_errors import describe_field_error
from kernelwright.agent.runtime.interrupts import STOP_SIGNALS
from kernelwright.agent.serving.routes.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger(__name__)
INSTRUCTIONS = (
    "Kernelwright judges Triton GPU kernels. A problem is a PyTorch reference; a candidate is one Python file with "
    "`class ModelNew`. Ask problem_show, then compile until it compiles, then check until it is correct, then bench "
    "and profile. `outcome` is the verdict; `failure` says where to look. A verdict that is still running is fetched "
    "with result. Every answer tells the budget that is left."
)
CLIENT_KEY = "kernelwright.client"
"""Key of the client's name in a request's ASGI scope."""


class KernelServer(MCPServer[Any]):
    """MCP server whose answers to invalid calls (unknown tool, wrong argument) have the form of the
    tools' refusals.
    """

    def __init__(self, judging: ServerJudge, version: str) -> None:
        super().__init__(
            "kernelwright",
            title="Kernelwright",
            instructions=INSTRUCTIONS,
            version=version,
            log_level="WARNING",
        )
        self._judging = judging
        Tools(judging).add_to(self)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Calls a tool. A refused call returns an answer with an error, never an exception."""
        if context is not None:
            CLIENT.set(_client_of(context))

            async def report(seconds: float, step: str) -> None:
                await context.report_progress(seconds, message=step)

            PROGRESS.set(report)
        try:
            await self._check_names(name, arguments)
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            budget = self._judging.budget.remaining()
            return tool_result(
                ToolAnswer(verdict_id=None, budget=budget, error=_refusal(name, error)), failed=True
            )

    async def _check_names(self, tool_name: str, arguments: dict[str, Any]) -> None:
        """Raises ToolError for an unknown argument. The SDK would ignore the argument."""
        for tool in await self.list_tools():
            known_names = list(tool.input_schema.get("properties", ()))
            unknown_names = [name for name in arguments if name not in known_names]
            if tool.name == tool_name and unknown_names:
                raise ToolError(
                    f"{tool_name} takes no {', '.join(unknown_names)}: it takes {', '.join(known_names)}"
                )


def _client_of(context: Context[Any, Any]) -> str:
    """Returns the client of a call over HTTP by its token; empty for stdio."""
    request = context.request_context.request
    return str(request.scope.get(CLIENT_KEY, "")) if request is not None else ""


def serve_stdio(judging: ServerJudge, version: str) -> None:
    """Serves one client until stdin is closed, or Ctrl-C or SIGTERM ends the process."""
    _end_at_signals(judging)
    with _warmed(judging):
        KernelServer(judging, version).run("stdio")


def _end_at_signals(judging: ServerJudge) -> None:
    """Makes signals end the process and its verdicts without joining threads: the SDK's thread
    blocks in a read of stdin.
    """

    def end(number: int, frame: object) -> None:
        judging.close()
        atexit._run_exitfuncs()
        os._exit(128 + number)

    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def serve_http(judging: ServerJudge, version: str, host: str, port: int, tokens: Tokens) -> None:
    """Serves many clients at http://HOST:PORT/mcp until the process is interrupted.

    tokens: tokens accepted as `Authorization: Bearer TOKEN`; an empty set admits every client.
    """
    import uvicorn

    with _warmed(judging):
        application = http_application(KernelServer(judging, version), host, tokens)
        uvicorn.run(
            application, host=host, port=port, log_level="warning", timeout_graceful_shutdown=2
        )


def http_application(server: KernelServer, host: str, tokens: Tokens) -> Starlette:
    """Returns the ASGI application. On a loopback host the SDK refuses requests of other origins."""
    application = server.streamable_http_app(host=host)
    application.add_middleware(BearerTokens, tokens=tokens)
    return application


class BearerTokens:
    """Middleware: refuses requests without a valid token, and adds the client's name to the scope."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards a request with a valid token together with the client's name; answers any other
        HTTP request with 401.
        """
        from starlette.responses import JSONResponse

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Bytes that are no UTF-8 must not raise: they are simply no valid token.
        header = dict(scope.get("headers", ())).get(b"authorization", b"")
        client = self._tokens.client(header.decode("utf-8", "surrogateescape"))
        if client is not None:
            name = client if self._tokens.needed else ""
            await self._app({**scope, CLIENT_KEY: name}, receive, send)
            return
        refusal = JSONResponse(
            {"error": "send a token of the server as Authorization: Bearer TOKEN"},
            status_code=401,
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal(scope, receive, send)


def _refusal(tool: str, error: ToolError) -> str:
    """Returns one line: the invalid arguments with their errors, or the SDK's message."""
    from pydantic import ValidationError

    if not isinstance(error.__cause__, ValidationError):
        return " ".join(str(error).split())
    wrong_fields = [
        describe_field_error(detail, whole="all") for detail in error.__cause__.errors()
    ]
    return f"{tool} cannot use its arguments: {'; '.join(wrong_fields)}"


@contextmanager
def _warmed(judging: ServerJudge) -> Iterator[None]:
    judging.warm()
    try:
        yield
    finally:
        judging.close()

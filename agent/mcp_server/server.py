"""The MCP server with its transports: stdio for one local client, streamable HTTP for many."""

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
"""The key under which a request's scope names the client."""
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


class KernelServer(MCPServer[Any]):
    """Answers a call that cannot be used (an unknown tool, a wrong argument) as the tools answer their own refusals."""

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
        """Calls one tool. A refused call is an answer with an error, never an exception."""
        if context is not None:
            CLIENT.set(_client_of(context))

            async def report(seconds: float, step: str) -> None:
                await context.report_progress(seconds, message=step)

            PROGRESS.set(report)
        try:
            await self._check_names(name, arguments)
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            left = self._judging.budget.left()
            return tool_result(
                ToolAnswer(verdict_id=None, budget=left, error=_refusal(name, error)), failed=True
            )

    async def _check_names(self, tool_name: str, arguments: dict[str, Any]) -> None:
        """Raises ToolError for an argument that the tool does not take: the SDK ignores it."""
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
    """Serves one client until it closes stdin, or Ctrl-C or SIGTERM ends the process."""
    _end_at_signals(judging)
    with _warmed(judging):
        KernelServer(judging, version).run("stdio")


def _end_at_signals(judging: ServerJudge) -> None:
    """Ends the process with its verdicts, and waits for no thread: the SDK's reader of stdin sits in one that nothing
    ends but its client.
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

    tokens: what clients send as `Authorization: Bearer TOKEN`; without any none is asked for.
    """
    import uvicorn

    with _warmed(judging):
        application = http_application(KernelServer(judging, version), host, tokens)
        uvicorn.run(
            application, host=host, port=port, log_level="warning", timeout_graceful_shutdown=2
        )


def http_application(server: KernelServer, host: str, tokens: Tokens) -> Starlette:
    """Returns the ASGI application. The SDK refuses requests of other origins where the host is loopback."""
    application = server.streamable_http_app(host=host)
    application.add_middleware(BearerTokens, tokens=tokens)
    return application


class BearerTokens:
    """Refuses every request without a token of the server, and notes whose token it is."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request with a token on, with the client's name; any other HTTP request is answered with 401."""
        from starlette.responses import JSONResponse

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
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
    """One line: which arguments cannot be used, or what the SDK says of the call."""
    from pydantic import ValidationError

    if not isinstance(error.__cause__, ValidationError):
        return " ".join(str(error).split())
    wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.__cause__.errors()]
    return f"{tool} cannot use its arguments: {'; '.join(wrong)}"


@contextmanager
def _warmed(judging: ServerJudge) -> Iterator[None]:
    judging.warm()
    try:
        yield
    finally:
        judging.close()

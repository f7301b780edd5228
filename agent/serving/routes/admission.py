"""Admits or refuses requests by token and host, before any of the body is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelwright.agent.serving.content import RequestRefused
from kernelwright.agent.serving.wire import Code

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK_HOST_PATTERN = re.compile(
    r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE
)
"""Allowed host names of a server without tokens."""

NO_TOKEN_MESSAGE = (
    "send a token of this server (of its token file, or of the address that it printed) in the "
    "header Authorization: Bearer TOKEN"
)
OTHER_HOST_MESSAGE = (
    "a server without tokens answers to 127.0.0.1 and localhost only: use that, or start "
    "it with --token-file"
)


class AdmissionMiddleware:
    """ASGI middleware: refuses bodies without a token, and requests of foreign hosts to a server
    without tokens.

    FastAPI reads and parses a body before its sender is checked. A server without tokens listens on
    loopback only. A browser can still send requests of any page whose host name resolves to
    127.0.0.1 (DNS rebinding); their Host header names the page's host.
    """

    def __init__(
        self, app: ASGIApp, client_of: Callable[[str | None], str | None], needs_token: bool,
        answer: Callable[[RequestRefused], Response],
    ) -> None:  # fmt: skip
        """client_of: returns the client of an Authorization header. answer: returns the response
        for a refusal.
        """
        self._app, self._client_of, self._needs_token, self._answer = (
            app,
            client_of,
            needs_token,
            answer,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards the request, or sends the refusal and closes the connection with the body
        unread.
        """
        refused = self._refusal(scope) if scope["type"] == "http" else None
        if refused is None:
            await self._app(scope, receive, send)
            return
        answer = self._answer(refused)
        answer.headers["Connection"] = "close"  # what is still to come is not read
        await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> RequestRefused | None:
        if not self._needs_token:
            is_loopback = LOOPBACK_HOST_PATTERN.fullmatch(_header(scope, b"host") or "")
            return None if is_loopback else RequestRefused(Code.UNAUTHORIZED, OTHER_HOST_MESSAGE)
        if scope["method"] == "POST" and self._client_of(_header(scope, b"authorization")) is None:
            return RequestRefused(Code.UNAUTHORIZED, NO_TOKEN_MESSAGE)
        return None


def _header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)

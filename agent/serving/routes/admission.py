"""Decides which clients may send a body, before any of it is read."""

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
"""Names under which a server without tokens may be addressed."""

NO_TOKEN_MESSAGE = "send a token of the server's token file: Authorization: Bearer TOKEN"
OTHER_HOST_MESSAGE = (
    "a server without tokens answers to 127.0.0.1 and localhost only: use that, or start "
    "it with --token-file"
)


class AdmissionMiddleware:
    """ASGI middleware: a body of who has no token is not read, and a page of another host reaches no open server.

    FastAPI reads and parses a body before it looks at who sends it. A server without tokens listens on loopback only,
    where a browser brings requests of any page whose name was made to lead to 127.0.0.1 (DNS rebinding): they say the
    page's host in the header Host.
    """

    def __init__(
        self, app: ASGIApp, known: Callable[[str | None], str | None], needs_token: bool,
        answer: Callable[[RequestRefused], Response],
    ) -> None:  # fmt: skip
        """known: the client of an Authorization header. answer: to who is refused."""
        self._app, self._known, self._needs_token, self._answer = app, known, needs_token, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers why not and closes the connection unread."""
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
        if scope["method"] == "POST" and self._known(_header(scope, b"authorization")) is None:
            return RequestRefused(Code.UNAUTHORIZED, NO_TOKEN_MESSAGE)
        return None


def _header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)

"""Limits of a connection: deadlines for headers, bodies and readers, and half-closed connections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER_SECONDS = 30.0
"""Seconds for the arrival of a whole header, from its first byte; afterwards the connection is
closed.
"""
BODY_SECONDS = 30.0
"""Seconds for the arrival of a whole body; afterwards the answer is 408."""
READER_SECONDS = 30.0
"""Seconds a reader may take nothing; afterwards the connection is closed."""
MAX_CONNECTIONS = 4096
"""Maximum number of open connections; at most half of the process's limit of open files."""


class BodyLimits:
    """ASGI middleware: reading raises HTTPException 408 for a slow body and 413 for a large body.

    Starlette's own RequestBodyLimitMiddleware answers in plain text despite a handler for 413;
    errors of this service are JSON.
    """

    def __init__(self, app: ASGIApp, seconds: float, sizes: Mapping[str, int], size: int) -> None:
        """sizes: maximum bytes by path. size: maximum bytes for every other path."""
        self._app, self._seconds, self._sizes, self._size = app, seconds, sizes, size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards the request with a `receive` that enforces size and time."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        deadline = asyncio.get_running_loop().time() + self._seconds
        most = self._sizes.get(scope["path"], self._size)
        complete, size, arrived = False, _announced(scope), 0

        async def receive_within_limits() -> Message:
            nonlocal complete, size, arrived
            if complete:
                return await receive()  # waits for the client to go
            if size > most:
                raise _refusal(413, f"the body is larger than {most} bytes: send less at once")
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                why = f"the body did not arrive within {self._seconds:g} seconds: send it in one go"
                raise _refusal(408, why) from None
            arrived += len(message.get("body", b""))
            size = max(size, arrived)
            complete = size <= most and not message.get("more_body", False)
            return message if size <= most else await receive_within_limits()

        await self._app(scope, receive_within_limits, send)


def _announced(scope: Scope) -> int:
    """Returns the number of bytes in the header Content-Length; 0 without the header."""
    length_header = next(
        (value for name, value in scope["headers"] if name == b"content-length"), b"0"
    )
    return int(length_header) if length_header.isdigit() else 0


def _refusal(status: int, why: str) -> HTTPException:
    return HTTPException(status, why, headers={"Connection": "close"})


class DeadlineConnection(H11Protocol):
    """uvicorn connection with deadlines for headers and readers, answers to half-closing clients,
    and a bound on the number of connections.

    A connection above the bound closes the connection with the longest idle time, or itself if none
    is idle.
    """

    header_seconds = HEADER_SECONDS
    reader_seconds = READER_SECONDS
    most_connections = MAX_CONNECTIONS
    _heard = 0.0
    """Time of the last arrival of data, on the event loop's clock."""
    _header_deadline: asyncio.TimerHandle | None = None
    _reader_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Starts the deadline of the first header."""
        super().connection_made(transport)
        self._heard = self.loop.time()
        self._header_deadline = self.loop.call_later(self.header_seconds, self._no_header)
        # uvicorn has added this connection to the set already.
        if len(self.connections) > self.most_connections:
            self._longest_idle().transport.close()

    def data_received(self, data: bytes) -> None:
        """Starts the deadline of each header, the second header of a connection included, which
        ends its idle time.
        """
        answered, before, self._heard = self._answered, self.cycle, self.loop.time()
        super().data_received(data)
        # A whole header has arrived: a request has begun.
        if self.cycle is not before:
            self._drop_deadline()
        elif answered and self._header_deadline is None:
            self._header_deadline = self.loop.call_later(self.header_seconds, self._no_header)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keeps the connection open during an answer: the client may still read."""
        return (
            self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the deadlines and releases waiting writers."""
        self._drop_deadline()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Starts the deadline of a reader whose buffer is full."""
        super().pause_writing()
        self._reader_deadline = self._reader_deadline or self.loop.call_later(
            self.reader_seconds, self.transport.abort
        )

    def resume_writing(self) -> None:
        """Cancels the reader's deadline."""
        super().resume_writing()
        if self._reader_deadline is not None:
            self._reader_deadline.cancel()
            self._reader_deadline = None

    @property
    def _answered(self) -> bool:
        """Whether no request is under way on this connection."""
        return self.cycle is None or self.cycle.response_complete

    def _longest_idle(self) -> DeadlineConnection:
        """Returns the connection with the longest idle time among those without a request under
        way; this connection if there is none.
        """
        peers = (
            peer
            for peer in self.connections
            if isinstance(peer, DeadlineConnection) and peer is not self
        )
        idle = [peer for peer in peers if peer._answered and not peer.transport.is_closing()]
        return min(idle, key=lambda peer: peer._heard, default=self)

    def _no_header(self) -> None:
        if self._answered and not self.transport.is_closing():
            self.transport.close()

    def _drop_deadline(self) -> None:
        if self._header_deadline is not None:
            self._header_deadline.cancel()
            self._header_deadline = None

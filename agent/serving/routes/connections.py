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
"""Seconds until the whole header of a request has arrived, from its first byte on; then the connection is closed."""
BODY_SECONDS = 30.0
"""Seconds until the whole body has arrived; then the answer is 408."""
READER_SECONDS = 30.0
"""Seconds for which a reader may take nothing; after them the connection is closed."""
MAX_CONNECTIONS = 4096
"""At once; a server of fewer descriptors has half of those."""


class BodyLimits:
    """ASGI middleware: reading a body that trickles in raises HTTPException 408, one that is too large 413.

    Starlette's own RequestBodyLimitMiddleware answers with plain text whatever a handler of 413 makes; errors here are
    JSON.
    """

    def __init__(self, app: ASGIApp, seconds: float, sizes: Mapping[str, int], size: int) -> None:
        """sizes: bytes by path. size: of every other path."""
        self._app, self._seconds, self._sizes, self._size = app, seconds, sizes, size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on whose body is read within its size and time: else 413 or 408 is answered."""
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
    """Returns the bytes that the header Content-Length announces; 0 where it says nothing."""
    length_header = next(
        (value for name, value in scope["headers"] if name == b"content-length"), b"0"
    )
    return int(length_header) if length_header.isdigit() else 0


def _refusal(status: int, why: str) -> HTTPException:
    return HTTPException(status, why, headers={"Connection": "close"})


class DeadlineConnection(H11Protocol):
    """uvicorn's, with deadlines for headers and for readers, answers to clients that half-close, and a bound on their
    number: one too many takes the place of the one that has been idle for longest, or is closed where none is.
    """

    header_seconds = HEADER_SECONDS
    reader_seconds = READER_SECONDS
    most_connections = MAX_CONNECTIONS
    _heard = 0.0
    """The time at which data last arrived, by the clock of the event loop."""
    _header_deadline: asyncio.TimerHandle | None = None
    _reader_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begins the time that the first header has."""
        super().connection_made(transport)
        self._heard = self.loop.time()
        self._header_deadline = self.loop.call_later(self.header_seconds, self._no_header)
        if len(self.connections) > self.most_connections:
            self._longest_idle().transport.close()

    def data_received(self, data: bytes) -> None:
        """A header that has begun has its deadline, also the second one of a connection, which ends its idle time."""
        answered, before, self._heard = self._answered, self.cycle, self.loop.time()
        super().data_received(data)
        if self.cycle is not before:
            self._drop_deadline()
        elif answered and self._header_deadline is None:
            self._header_deadline = self.loop.call_later(self.header_seconds, self._no_header)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keeps the connection where a request is being answered: its client may still read."""
        return (
            self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the deadlines and lets go whoever waits to write."""
        self._drop_deadline()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The reader has not taken what was written: it has so many seconds to begin."""
        super().pause_writing()
        self._reader_deadline = self._reader_deadline or self.loop.call_later(
            self.reader_seconds, self.transport.abort
        )

    def resume_writing(self) -> None:
        """The reader takes again: its deadline ends."""
        super().resume_writing()
        if self._reader_deadline is not None:
            self._reader_deadline.cancel()
            self._reader_deadline = None

    @property
    def _answered(self) -> bool:
        """Whether nothing is under way on this connection."""
        return self.cycle is None or self.cycle.response_complete

    def _longest_idle(self) -> DeadlineConnection:
        """Returns the connection that has been idle for longest among those on which no request is being answered; this
        one where there is none.
        """
        others = (
            one
            for one in self.connections
            if isinstance(one, DeadlineConnection) and one is not self
        )
        idle = [one for one in others if one._answered and not one.transport.is_closing()]
        return min(idle, key=lambda one: one._heard, default=self)

    def _no_header(self) -> None:
        if self._answered and not self.transport.is_closing():
            self.transport.close()

    def _drop_deadline(self) -> None:
        if self._header_deadline is not None:
            self._header_deadline.cancel()
            self._header_deadline = None

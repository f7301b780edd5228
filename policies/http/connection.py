"""Sends one request at a time to a model server, through the client library of its protocol, and
names failures.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.policies.base import PolicyError, PolicyRefused, PolicyUnavailable, Trouble
from kernelwright.policies.http.bodies import decode_body, decode_text, whole_json
from kernelwright.policies.http.errors import (
    UnknownField,
    UnreadableAnswer,
    error_of_status,
    refused_field,
    unavailable,
)
from kernelwright.policies.http.server import ModelServer

if TYPE_CHECKING:
    from types import ModuleType

MAX_REPLY_BYTES = 64 << 20
"""Bytes; an answer without an end is cut there, or when its time is over."""
_STATUSES_OF_REFUSED_FIELDS = (400, 403, 422, 501)


class ServerAnswer(NamedTuple):
    """A decoded answer of status 200."""

    content: Any
    headers: Mapping[str, str]
    raw: str
    """Body as text, for error messages about undecodable answers."""


class ServerConnection:
    """Connection to a server, for use from one event loop.

    The libraries `openai` and `anthropic` have the same clients and errors. Their retries are
    off, because
    `RetryingPolicy` repeats requests.
    """

    def __init__(
        self, server: ModelServer, client: Any, library: ModuleType, timeout: float
    ) -> None:
        """Stores the client. `library`: module of the client. `timeout`: seconds for a whole
        answer.
        """
        self.server, self.client, self.timeout = server, client, timeout
        self._library = library

    async def close(self) -> None:
        """Closes the client's connections, within its event loop."""
        await self.client.close()

    async def read(
        self,
        call: Callable[..., AbstractAsyncContextManager[Any]],
        body: dict[str, Any],
        seconds: float | None = None,
    ) -> ServerAnswer:
        """Sends a request, and reads its whole answer within `seconds` and MAX_REPLY_BYTES.

        Raises:
            UnknownField: The server refuses the request, perhaps because of a field.
            PolicyError: Every other failure; UnreadableAnswer if the answer had begun, with status 200.
        """
        received = bytearray()
        headers: Mapping[str, str] | None = None
        failure: PolicyError | None = None
        try:
            async with (
                _within_time_limit(seconds or self.timeout, self.server),
                call(**body) as response,
            ):
                headers = response.headers
                _refuse_redirection(response.http_response, self.server)
                await _read_body(response, received, self.server)
        except self._library.APIStatusError as error:
            raise self._refusal(error) from error
        # The body may be complete although the connection failed after its last byte.
        except PolicyUnavailable as error:
            failure = error
        except _transport_errors(self._library) as error:
            failure = unavailable(error, self.server)
        return self._answer(headers, bytes(received), failure)

    def _answer(
        self, headers: Mapping[str, str] | None, received: bytes, failure: PolicyError | None
    ) -> ServerAnswer:
        """Decodes the received bytes. A complete document is an answer, even if the connection
        failed after its last byte.
        """
        if headers is None:
            assert failure is not None
            raise failure
        content_type = headers.get("content-type", "")
        text = decode_text(received, content_type)
        if failure is None:
            return ServerAnswer(decode_body(text, content_type, self.server), headers, text)
        content = whole_json(text)
        if content is None:
            raise UnreadableAnswer(str(failure), failure.trouble, text) from failure
        return ServerAnswer(content, headers, text)

    def _refusal(self, error: Any) -> Exception:
        _refuse_redirection(error.response, self.server)
        refusal = error_of_status(
            error.status_code, error.response.headers, error.body, self.server
        )
        if error.status_code in _STATUSES_OF_REFUSED_FIELDS and refusal.trouble in (
            Trouble.REQUEST,
            Trouble.SERVER,
        ):
            return UnknownField(refused_field(error.body), refusal)
        return refusal


def _refuse_redirection(response: Any, server: ModelServer) -> None:
    """Raises PolicyRefused if a redirection (301, 302, 303) turned the request into a GET and
    lost its body.

    `response`: the answer of the client library's HTTP library (httpx or httpx2).
    """
    if response.history and response.history[0].request.method != response.request.method:
        address = str(response.url).partition("?")[0].removesuffix("/chat/completions")
        raise PolicyRefused(
            f"{server.url} redirects to {address}: give the address that the model is served at",
            Trouble.NOT_THE_PROTOCOL,
        )


@asynccontextmanager
async def _within_time_limit(seconds: float, server: ModelServer) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise PolicyUnavailable(
            f"{server.url} did not finish in {seconds:.0f} s (--timeout)", Trouble.TIMEOUT
        ) from error


async def _read_body(response: Any, received: bytearray, server: ModelServer) -> None:
    """Adds the chunks of an answer to `received`, and keeps them there if the connection fails.

    `response`: the client library's streamed answer (openai's AsyncAPIResponse).

    Raises:
        PolicyUnavailable: The answer exceeds MAX_REPLY_BYTES.
    """
    async for chunk in response.iter_bytes():
        received += chunk
        if len(received) > MAX_REPLY_BYTES:
            raise PolicyUnavailable(
                f"{server.url} sent a reply that does not end: reading stopped after {len(received)} bytes",
                Trouble.NONSENSE,
            )


def _transport_errors(library: ModuleType) -> tuple[type[Exception], ...]:
    """Returns the error classes of the client library and of its HTTP library.

    The client library wraps failures of sending; failures while the body is read keep the HTTP
    library's classes.
    """
    errors: list[type[Exception]] = [library.APIError]
    for name in ("httpx", "httpx2"):
        try:
            module = __import__(name)
        except ImportError:
            continue
        errors += [module.HTTPError, module.InvalidURL, module.StreamError]
    return tuple(errors)

"""Policy behind a server: sends requests in parallel, computes the cost of each reply, and logs
it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from kernelwright.policies.base import (
    Completion,
    PaidReply,
    PolicyError,
    PolicyUnavailable,
    Request,
    Trouble,
    Usage,
)
from kernelwright.policies.deadlines import latest_deadline, seconds_until
from kernelwright.policies.http.connection import ServerConnection
from kernelwright.policies.http.errors import UnreadableAnswer
from kernelwright.policies.http.event_loop import EventLoop
from kernelwright.policies.http.model_reply import (
    COUNT,
    OBJECT,
    ModelReply,
    OptionalFields,
    count_tokens,
)
from kernelwright.policies.http.rate_limits import describe_rate_limits
from kernelwright.policies.http.server import ModelServer
from kernelwright.policies.prices import Prices

log = logging.getLogger(__name__)

_FAILS_EVERY_REQUEST = {Trouble.KEY, Trouble.QUOTA, Trouble.MODEL}


class ServedReply(NamedTuple):
    """A reply with the server's rate limits and further fields of the completion."""

    reply: ModelReply
    rate_limits: str
    fields: dict[str, Any]
    """Further fields of the completion."""


class ServerPolicy(ABC):
    """Asks a server once for each request; `RetryingPolicy` asks again. Nothing is read from the environment."""

    def __init__(self, server: ModelServer, at_once: int, prices: Prices | None) -> None:
        self._server, self._at_once = server, at_once
        self._prices = prices or Prices()
        self._loop = EventLoop()
        self._connection: ServerConnection | None = None
        self._unreadable_fields: set[str] = set()

    @property
    @abstractmethod
    def name(self) -> str:
        """Returns the name `open_policy` opens."""

    @abstractmethod
    def _connect(self) -> ServerConnection:
        """Opens the client. Raises PolicyRefused if its library is not installed."""

    @abstractmethod
    async def _prepare(self, connection: ServerConnection) -> None:
        """Reads the properties of the server the first request depends on."""

    @abstractmethod
    async def _reply(self, request: Request, connection: ServerConnection) -> ServedReply:
        """Requests one reply from the server. Raises PolicyError."""

    def close(self) -> None:
        """Closes the connections. A closed policy opens again when it is asked."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._loop.wait_for(connection.close())
        self._loop.close()

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Asks the server for all at once. Raises PolicyError: refused, unavailable or not understood."""
        if not requests:
            return []
        return self._loop.wait_for(self._sample(requests), seconds_until(latest_deadline(requests)))

    def _open(self) -> ServerConnection:
        if self._connection is None:
            self._server.check()
            self._connection = self._connect()
        return self._connection

    async def _sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Asks all requests together; a hopeless refusal (a wrong key) stops all that have not begun."""
        connection = self._open()
        await self._prepare(connection)
        # A wrong key fails every request: those that have not begun are dropped.
        hopeless, gate = asyncio.Event(), asyncio.Semaphore(self._at_once)

        async def outcome(request: Request) -> Completion | PolicyError | None:
            async with gate:
                try:
                    return (
                        None if hopeless.is_set() else await self._completion(request, connection)
                    )
                except PolicyError as error:
                    if error.trouble in _FAILS_EVERY_REQUEST:
                        hopeless.set()
                    return error

        outcomes = await asyncio.gather(*(outcome(request) for request in requests))
        return _all_or_the_error(outcomes)

    async def _completion(self, request: Request, connection: ServerConnection) -> Completion:
        """Returns a completion. The error of an unreadable answer holds its cost in `paid`."""
        prompt = "".join(message.content for message in request.messages)
        started = time.monotonic()
        try:
            served = await self._reply(request, connection)
        except UnreadableAnswer as error:
            usage = self._priced(usage_of_unreadable(error, prompt))
            error.paid = {0: (PaidReply(text=error.raw, usage=usage),)}
            log.warning("%s (%s)", error, _describe(usage))
            raise
        reply = served.reply
        usage = self._priced(reply.usage(prompt))
        latency = time.monotonic() - started
        log.info(
            "%s",
            ", ".join(
                filter(None, [f"reply in {latency:.1f} s", _describe(usage), served.rate_limits])
            ),
        )
        self._tell_unreadable(reply)
        return Completion(
            text=reply.text,
            kind=reply.kind,
            finish=reply.finish,
            usage=usage,
            policy=self.name,
            prompt_token_ids=reply.prompt_token_ids,
            token_ids=reply.token_ids,
            logprobs=reply.logprobs,
            latency=latency,
            **served.fields,
        )

    def _priced(self, usage: Usage) -> Usage:
        return usage.with_(
            dollars=self._prices.dollars(self._server.url, self._server.model, usage)
        )

    def _tell_unreadable(self, reply: ModelReply) -> None:
        """Logs each unreadable field once."""
        for name in set(reply.unreadable) - self._unreadable_fields:
            self._unreadable_fields.add(name)
            log.warning(
                "%s sends a field %s that cannot be read: it is ignored", self._server.url, name
            )


def usage_of_unreadable(error: UnreadableAnswer, prompt: str) -> Usage:
    """Returns the tokens of an unreadable answer: as counted by the server, else estimated."""
    fields = OptionalFields()
    content = error.content if isinstance(error.content, dict) else {}
    usage = fields.read("usage", content.get("usage"), OBJECT) or {}
    prompt_tokens = fields.read(
        "prompt_tokens", usage.get("prompt_tokens", usage.get("input_tokens")), COUNT
    )
    reply_tokens = fields.read(
        "completion_tokens", usage.get("completion_tokens", usage.get("output_tokens")), COUNT
    )
    return count_tokens(prompt, error.raw, prompt_tokens, reply_tokens)


def _describe(usage: Usage) -> str:
    about = "about " if usage.estimated else ""
    dollars = "" if usage.dollars is None else f", ${usage.dollars:.4f}"
    return f"{about}{usage.prompt_tokens + usage.completion_tokens:,} tokens{dollars}"


def rate_limits(headers: object) -> str:
    """Returns a description of the rate limits in the headers of an answer."""
    return describe_rate_limits(dict(headers.items())) if hasattr(headers, "items") else ""


def _all_or_the_error(outcomes: Sequence[Completion | PolicyError | None]) -> list[Completion]:
    """Returns the completions if all requests succeeded.

    Raises a refusal before an unavailability, with the finished completions and the paid answers
    without a reply.
    """
    finished = {
        index: outcome for index, outcome in enumerate(outcomes) if isinstance(outcome, Completion)
    }
    errors = {
        index: outcome for index, outcome in enumerate(outcomes) if isinstance(outcome, PolicyError)
    }
    if not errors:
        return list(finished.values())
    paid = {index: replies for index, error in errors.items() for replies in error.paid.values()}
    error = min(errors.values(), key=lambda error: isinstance(error, PolicyUnavailable))
    error.finished, error.paid = finished, paid
    raise error

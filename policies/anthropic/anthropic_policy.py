"""A model of Anthropic, through the client library `anthropic` (the extra of that name). Asks once."""

from __future__ import annotations

from typing import Any

from kernelwright.policies.anthropic.reply import parse_reply
from kernelwright.policies.base import (
    Capabilities,
    PolicyRefused,
    PromptForm,
    Request,
    Role,
    Trouble,
)
from kernelwright.policies.http.connection import ServerConnection
from kernelwright.policies.http.errors import UnknownField
from kernelwright.policies.http.server import ExtraFields, ModelServer, address_without
from kernelwright.policies.http.server_policy import ServedReply, ServerPolicy, rate_limits
from kernelwright.policies.prices import Prices
from kernelwright.policies.server_names import ANTHROPIC_URL

KEY_VARIABLE = "ANTHROPIC_API_KEY"
_NO_KEY = "none"


class AnthropicPolicy(ServerPolicy):
    """A model at a server that speaks Anthropic's Messages API."""

    def __init__(
        self,
        model: str,
        url: str = ANTHROPIC_URL,
        *,
        key: str | None = None,
        at_once: int = 16,
        timeout: float = 600.0,
        prices: Prices | None = None,
        extra: ExtraFields | None = None,
    ) -> None:
        """Stores the settings; opens no connection yet.

        `url` ends before /v1, which the client adds. `timeout`: seconds for a whole answer.
        """
        address = address_without(url, "/messages", "/v1")
        super().__init__(
            ModelServer(model=model, url=address, key=key, key_variable=KEY_VARIABLE),
            at_once,
            prices,
        )
        self._timeout = timeout
        self._extra = extra or ExtraFields()

    @property
    def name(self) -> str:
        """Returns the policy's name, `anthropic:MODEL@URL`."""
        return f"anthropic:{self._server.model}@{self._server.url}"

    @property
    def prompt_form(self) -> PromptForm:
        """Returns the chat form, the only one the API has."""
        return PromptForm.CHAT

    @property
    def capabilities(self) -> Capabilities:
        """Returns the number of requests in parallel; the API gives neither token ids nor log-probs."""
        return Capabilities(at_once=self._at_once)

    def _connect(self) -> ServerConnection:
        try:
            import anthropic
        except ImportError as error:
            raise PolicyRefused(
                "anthropic is not installed: pip install 'kernelwright[anthropic]'",
                Trouble.NOT_INSTALLED,
            ) from error
        server = self._server
        client = anthropic.AsyncAnthropic(
            api_key=server.key or _NO_KEY, base_url=server.base_url, default_query=server.query, max_retries=0,
            timeout=self._timeout,
        )  # fmt: skip
        return ServerConnection(server, client, anthropic, self._timeout)

    async def _prepare(self, connection: ServerConnection) -> None:
        """Reads nothing: the API says of its models nothing that sampling needs."""

    async def _reply(self, request: Request, connection: ServerConnection) -> ServedReply:
        call = connection.client.messages.with_streaming_response.create
        try:
            answer = await connection.read(call, self._body(request))
        except UnknownField as error:
            raise error.refusal from error
        return ServedReply(parse_reply(answer, self._server), rate_limits(answer.headers), {})

    def _body(self, request: Request) -> dict[str, Any]:
        """Returns the arguments of a request. Sampling fields at their defaults are left out: newer models refuse
        `temperature` and `top_p` together, or at all.
        """
        sampling = request.sampling
        system = "\n\n".join(
            message.content for message in request.messages if message.role is Role.SYSTEM
        )
        messages = [message for message in request.messages if message.role is not Role.SYSTEM]
        body: dict[str, Any] = {
            "model": request.adapter or self._server.model,
            "max_tokens": sampling.max_tokens,
            "messages": [
                {"role": str(message.role), "content": message.content} for message in messages
            ],
        }
        if system:
            body["system"] = system
        if sampling.stop:
            body["stop_sequences"] = list(sampling.stop)
        extra: dict[str, Any] = sampling.model_dump(
            include={"temperature", "top_p", "top_k"}, exclude_defaults=True
        )
        if sampling.thinking is not None:
            kind = "adaptive" if sampling.thinking else "disabled"
            extra["thinking"] = {"type": kind}
        if sampling.thinking_tokens is not None:
            extra["thinking"] = {"type": "enabled", "budget_tokens": sampling.thinking_tokens}
        if self._extra.reasoning_effort is not None:
            extra["output_config"] = {"effort": self._extra.reasoning_effort}
        extra |= self._extra.body
        return {name: value for name, value in body.items() if name not in extra} | {
            **{name: extra[name] for name in body if name in extra},
            "extra_body": {name: value for name, value in extra.items() if name not in body},
        }

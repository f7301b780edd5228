"""Any server of /v1/chat/completions: vllm serve, transformers serve, hosted ones. Asks once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Mapping
from typing import Any

from kernelwright.policies.base import (
    Capabilities,
    PolicyError,
    PolicyRefused,
    PolicyUnavailable,
    PromptForm,
    Request,
    Sampling,
    Trouble,
)
from kernelwright.policies.http.connection import ServerAnswer, ServerConnection
from kernelwright.policies.http.errors import UnknownField
from kernelwright.policies.http.model_reply import ModelReply
from kernelwright.policies.http.server import ExtraFields, ModelServer, address_without
from kernelwright.policies.http.server_policy import ServedReply, ServerPolicy, rate_limits
from kernelwright.policies.openai.reply import parse_models, parse_reply
from kernelwright.policies.openai.request_fields import chat_body, next_without
from kernelwright.policies.openai.served_model import ModelNotServed, ServedModel, served_model
from kernelwright.policies.prices import Prices
from kernelwright.policies.server_names import OPENAI_URL

log = logging.getLogger(__name__)

_LISTING_SECONDS = 10.0
_NO_KEY = "none"


class OpenAIPolicy(ServerPolicy):
    """A model at a server that speaks OpenAI's protocol."""

    def __init__(
        self,
        model: str,
        url: str = OPENAI_URL,
        *,
        key: str | None = None,
        at_once: int = 16,
        timeout: float = 600.0,
        prices: Prices | None = None,
        extra: ExtraFields | None = None,
    ) -> None:
        """Stores the settings; opens no connection yet.

        Args:
            model: Name of the model at the server.
            url: Address, which usually ends in /v1.
            key: Key of the server, if needed.
            at_once: Number of parallel requests.
            timeout: Seconds for a whole answer, from the request to its last byte.
            prices: Prices of tokens.
            extra: Fields of the user added to every request.
        """
        super().__init__(
            ModelServer(model=model, url=address_without(url, "/chat/completions"), key=key),
            at_once,
            prices,
        )
        self._timeout = timeout
        self._extra_body = _extra_body(extra or ExtraFields())
        self._served = ServedModel()
        self._is_listed = False
        self._listing = asyncio.Lock()
        self._is_processed: bool | None = None
        self._without: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Returns the policy's name, `openai:MODEL@URL`."""
        return f"openai:{self._server.model}@{self._server.url}"

    @property
    def prompt_form(self) -> PromptForm:
        """Returns the prompt form in the server's listing of the model; the chat form if the
        listing is unavailable.
        """
        with contextlib.suppress(PolicyError):
            self.served()
        return self._served.prompt_form

    def served(self) -> ServedModel:
        """Returns the server's listing of its model. Raises PolicyUnavailable, or PolicyRefused
        for another model.
        """
        self._loop.wait_for(self._list())
        return self._served

    @property
    def capabilities(self) -> Capabilities:
        """Returns the capabilities of the server; before the first answer none are known."""
        return Capabilities(
            token_ids=self._served.is_vllm,
            logprobs=self._served.is_vllm,
            adapters=bool(self._served.adapter_revisions),
            seeds=self._served.is_vllm,
            at_once=self._at_once,
            context=self._served.context,
        )

    def _connect(self) -> ServerConnection:
        try:
            import openai
        except ImportError as error:
            raise PolicyRefused(
                "openai is not installed: pip install openai", Trouble.NOT_INSTALLED
            ) from error
        server = self._server
        client = openai.AsyncOpenAI(
            api_key=server.key or _NO_KEY, base_url=server.base_url, default_query=server.query, max_retries=0,
            timeout=self._timeout,
        )  # fmt: skip
        self._is_listed = False
        self._listing = asyncio.Lock()
        return ServerConnection(server, client, openai, self._timeout)

    async def _list(self) -> None:
        await self._prepare(self._open())

    async def _prepare(self, connection: ServerConnection) -> None:
        """Reads /models once. After a temporary failure the server is treated as a plain one
        until the next attempt.
        """
        async with self._listing:
            if self._is_listed:
                return
            call = connection.client.models.with_streaming_response.list
            try:
                answer = await connection.read(call, {}, min(_LISTING_SECONDS, self._timeout))
                models = parse_models(answer.content)
                server = self._server
                if models is not None:
                    self._served = await asyncio.to_thread(
                        served_model, models, server.model, server.url
                    )
            except PolicyUnavailable as error:
                if error.trouble in (Trouble.CONNECTION, Trouble.TIMEOUT, Trouble.BUSY):
                    raise
                return
            except ModelNotServed:
                raise
            except (PolicyRefused, UnknownField):
                log.debug("%s lists no models", self._server.url)
            self._is_listed = True

    async def _reply(self, request: Request, connection: ServerConnection) -> ServedReply:
        sampling = request.sampling
        if self._served.is_vllm and sampling.seed is None:
            sampling = sampling.with_(seed=secrets.randbelow(1 << 31))
        answer = await self._chat(request, sampling, connection)
        reply = parse_reply(answer, self._server)
        exact = sampling.exact and await self._is_after_temperature(request, sampling, connection)
        return ServedReply(
            reply, rate_limits(answer.headers), self._fields(request, sampling, reply, exact)
        )

    async def _chat(
        self, request: Request, sampling: Sampling, connection: ServerConnection
    ) -> ServerAnswer:
        """Sends a chat request, omitting fields that the server refuses and that change no
        answer.

        A server that names no field is asked with one group of fields less at a time. Omitted
        fields are remembered for
        later requests. If omitting does not help, the error is the first refusal, or a refusal
        that names a field.
        """
        # Repeat with fewer fields until the server accepts the request.
        without, first = self._without, None
        while True:
            try:
                answer = await self._send(request, sampling, without, connection)
                break
            except UnknownField as error:
                first = first or error.refusal
                fields = (
                    None if self._served.is_vllm else next_without(error.field, without, sampling)
                )
                if fields is None:
                    raise (error.refusal if error.field else first) from error
                without = fields
        if without != self._without:
            log.info(
                "%s does not take %s: left out from now on",
                self._server.url,
                ", ".join(sorted(without)),
            )
            self._without = without
        return answer

    async def _send(
        self, request: Request, sampling: Sampling, without: frozenset[str], connection: ServerConnection,
        additional: Mapping[str, Any] | None = None,
    ) -> ServerAnswer:  # fmt: skip
        extra = self._extra_body | dict(additional or {})
        body = chat_body(request, sampling, self._server.model, self._served, without, extra)
        return await connection.read(
            connection.client.chat.completions.with_streaming_response.create, body
        )

    async def _is_after_temperature(
        self, request: Request, sampling: Sampling, connection: ServerConnection
    ) -> bool:
        """Checks whether the server's log-probs are those of the distribution after the
        temperature.

        At temperature 1 there is no difference. Otherwise two requests for a single token decide:
        the gap between the
        likeliest token and the fourth halves from temperature 1 to 2 if log-probs are taken after
        the temperature.
        """
        if sampling.temperature == 1.0 or not self._served.is_vllm:
            return True
        if self._is_processed is None:
            plain, flattened = [
                await self._gap(request, temperature, connection) for temperature in (1.0, 2.0)
            ]
            if plain is not None and flattened is not None and plain >= 1e-3:
                self._is_processed = abs(flattened / plain - 0.5) < 0.1
            if self._is_processed is False:
                url = self._server.url
                log.warning(
                    "%s gives raw log-probs: start it with --logprobs-mode processed_logprobs", url
                )
        return bool(self._is_processed)

    async def _gap(
        self, request: Request, temperature: float, connection: ServerConnection
    ) -> float | None:
        sampling = Sampling(temperature=temperature, max_tokens=1, seed=0)
        try:
            answer = await self._send(
                request, sampling, self._without, connection, {"top_logprobs": 5}
            )
            listed = answer.content["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            likeliest = sorted((float(entry["logprob"]) for entry in listed), reverse=True)
            return likeliest[0] - likeliest[3]
        except (PolicyError, UnknownField, LookupError, TypeError, ValueError):
            return None

    def _fields(
        self, request: Request, sampling: Sampling, reply: ModelReply, exact: bool
    ) -> dict[str, Any]:
        served = self._served
        whole = (
            bool(reply.token_ids) and bool(reply.prompt_token_ids) and reply.logprobs is not None
        )
        return {
            "exact": exact and whole,
            "revision": served.revision or reply.revision,
            "adapter_revision": served.adapter_revisions.get(request.adapter or self._server.model),
            "tokenizer_hash": served.identity.tokenizer_hash,
            "chat_template_hash": served.identity.chat_template_hash,
            "seed": None if "seed" in self._without else sampling.seed,
        }


def _extra_body(extra: ExtraFields) -> dict[str, Any]:
    effort = {} if extra.reasoning_effort is None else {"reasoning_effort": extra.reasoning_effort}
    return effort | extra.body

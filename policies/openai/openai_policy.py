"""Any server of /v1/chat/completions: vllm serve, transformers serve, hosted ones. Asks once; `Patient` asks again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Any

from kernelwright.policies.base import (
    Capabilities,
    Completion,
    PolicyError,
    PolicyUnavailable,
    PromptForm,
    Request,
    Sampling,
    Trouble,
)
from kernelwright.policies.openai.connection import Connection, ServedModel, UnknownField
from kernelwright.policies.openai.event_loop import EventLoop
from kernelwright.policies.openai.reply import Reply, parse_reply
from kernelwright.policies.prices import Prices

log = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"
_FAILS_EVERY_REQUEST = {Trouble.KEY, Trouble.QUOTA, Trouble.MODEL}


class OpenAIPolicy:
    """`key` is given by the caller; nothing is read from the environment here."""

    def __init__(
        self,
        model: str,
        url: str = OPENAI_URL,
        *,
        key: str | None = None,
        at_once: int = 16,
        timeout: float = 600.0,
        prices: Prices | None = None,
    ) -> None:
        """`timeout`: seconds for one whole answer, from the request to its last byte."""
        self._model, self._url, self._key = model, url.rstrip("/"), key
        self._at_once, self._timeout = at_once, timeout
        self._prices = prices or Prices()
        self._loop = EventLoop()
        self._connection: Connection | None = None
        self._served = ServedModel()
        self._is_processed: bool | None = None
        self._without: set[str] = set()

    @property
    def name(self) -> str:
        """Returns the name `openai:MODEL@URL`."""
        return f"openai:{self._model}@{self._url}"

    @property
    def prompt_form(self) -> PromptForm:
        """Returns the prompt form that the server's listing names for its model; the chat form where the listing cannot
        be read now.
        """
        with contextlib.suppress(PolicyError):
            self.served()
        return self._served.prompt_form

    def served(self) -> ServedModel:
        """Returns the server's listing of its model. Raises PolicyUnavailable, and PolicyRefused where it serves
        another one.
        """
        self._served = self._loop.wait_for(self._listed())
        return self._served

    async def _listed(self) -> ServedModel:
        return await self._open().served()

    def _open(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._model, self._url, self._key, self._at_once, self._timeout)
        return self._connection

    @property
    def capabilities(self) -> Capabilities:
        """Returns the capabilities of the server; before the first answer none are known."""
        return Capabilities(
            token_ids=self._served.is_vllm,
            logprobs="logprobs" not in self._without,
            adapters=bool(self._served.adapter_revisions),
            seeds=self._served.is_vllm,
            at_once=self._at_once,
            context=self._served.context,
        )

    def close(self) -> None:
        """A closed policy opens again when it is asked."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._loop.wait_for(connection.close())
        self._loop.close()

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Asks the server for all at once. Raises PolicyError: refused, unavailable or not understood."""
        return self._loop.wait_for(self._sample(requests)) if requests else []

    async def _sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Asks all requests together; a hopeless refusal (a wrong key) stops those that have not begun."""
        connection = self._open()
        self._served = await connection.served()
        hopeless, gate = asyncio.Event(), asyncio.Semaphore(self._at_once)

        async def outcome(request: Request) -> Completion | PolicyError | None:
            async with gate:
                try:
                    return None if hopeless.is_set() else await self._answer(request, connection)
                except PolicyError as error:
                    if error.trouble in _FAILS_EVERY_REQUEST:
                        hopeless.set()
                    return error

        outcomes = await asyncio.gather(*(outcome(request) for request in requests))
        return _all_or_the_error(outcomes)

    async def _answer(self, request: Request, connection: Connection) -> Completion:
        sampling = request.sampling
        if self._served.is_vllm and sampling.seed is None:
            sampling = sampling.with_(seed=secrets.randbelow(1 << 31))
        started = time.monotonic()
        reply = await self._chat(request, sampling, connection)
        latency = time.monotonic() - started
        exact = sampling.exact and await self._is_after_temperature(request, sampling, connection)
        return self._completion(request, sampling, reply, latency, exact)

    async def _chat(self, request: Request, sampling: Sampling, connection: Connection) -> Reply:
        """Leaves out, once and for all, what the server names as a field it does not have and that changes no
        answer.
        """
        while True:
            try:
                return parse_reply(await connection.chat(self._body(request, sampling)), self._url)
            except UnknownField as error:
                if not self._can_go_without(error.field, sampling):
                    raise error.refusal from error
                log.info("%s does not take %s: left out from now on", self._url, error.field)
                self._without.add(error.field)

    def _can_go_without(self, field: str, sampling: Sampling) -> bool:
        standard = {"logprobs", "max_tokens"}
        standard |= {"temperature"} if sampling.temperature == 1.0 else set()
        standard |= {"top_p"} if sampling.top_p == 1.0 else set()
        return not self._served.is_vllm and field in standard - self._without

    def _body(self, request: Request, sampling: Sampling) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.adapter or self._model,
            "messages": [{"role": str(message.role), "content": message.content} for message in request.messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": min(sampling.max_tokens, self._served.context or sampling.max_tokens),
            "logprobs": True,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if "max_tokens" in self._without:
            body["max_completion_tokens"] = sampling.max_tokens
        body = {field: value for field, value in body.items() if field not in self._without}
        # vLLM takes missing fields from the model's generation_config.json, so every field is sent.
        extra: dict[str, Any] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0} if self._served.is_vllm else {}
        extra |= sampling.model_dump(include={"top_k", "min_p", "repetition_penalty"}, exclude_defaults=True)
        return body | {"extra_body": extra | ({"return_token_ids": True} if self._served.is_vllm else {})}

    async def _is_after_temperature(self, request: Request, sampling: Sampling, connection: Connection) -> bool:
        """Whether log-probs are. At temperature 1 it is the same; else it is found out, once, by two tokens.

        The gap between the likeliest token and the fourth halves from temperature 1 to 2 where they are.
        """
        if sampling.temperature == 1.0 or not self._served.is_vllm:
            return True
        if self._is_processed is None:
            one, two = [await self._gap(request, temperature, connection) for temperature in (1.0, 2.0)]
            self._is_processed = None if one is None or two is None or one < 1e-3 else abs(two / one - 0.5) < 0.1
            if self._is_processed is False:
                log.warning("%s gives raw log-probs: start it with --logprobs-mode processed_logprobs", self._url)
        return bool(self._is_processed)

    async def _gap(self, request: Request, temperature: float, connection: Connection) -> float | None:
        body = self._body(request, Sampling(temperature=temperature, max_tokens=1, seed=0))
        try:
            content = await connection.chat({**body, "top_logprobs": 5})
            listed = content["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            likeliest = sorted((float(entry["logprob"]) for entry in listed), reverse=True)
            return likeliest[0] - likeliest[3]
        except (PolicyError, UnknownField, LookupError, TypeError, ValueError):
            return None

    def _completion(
        self, request: Request, sampling: Sampling, reply: Reply, latency: float, exact: bool
    ) -> Completion:
        choice, served = reply.choices[0], self._served
        usage = reply.spent("".join(message.content for message in request.messages))
        logprobs = choice.sound_logprobs()
        whole = bool(choice.token_ids) and bool(reply.prompt_token_ids) and logprobs is not None
        return Completion(
            text=choice.message.content or "",
            finish=choice.finish(),
            usage=usage.with_(dollars=self._prices.dollars(self._url, self._model, usage)),
            policy=self.name,
            prompt_token_ids=None if reply.prompt_token_ids is None else tuple(reply.prompt_token_ids),
            token_ids=None if choice.token_ids is None else tuple(choice.token_ids),
            logprobs=logprobs,
            exact=exact and whole,
            revision=served.revision or reply.system_fingerprint,
            adapter_revision=served.adapter_revisions.get(request.adapter or self._model),
            tokenizer_hash=served.identity.tokenizer_hash,
            chat_template_hash=served.identity.chat_template_hash,
            seed=sampling.seed,
            latency=latency,
        )


def _all_or_the_error(outcomes: Sequence[Completion | PolicyError | None]) -> list[Completion]:
    """Returns the outcomes. Raises a refusal before an unavailability, with the completions that were finished."""
    finished = {place: outcome for place, outcome in enumerate(outcomes) if isinstance(outcome, Completion)}
    errors = [outcome for outcome in outcomes if isinstance(outcome, PolicyError)]
    if errors:
        error = min(errors, key=lambda error: isinstance(error, PolicyUnavailable))
        error.finished = finished
        raise error
    return list(finished.values())

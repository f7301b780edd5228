"""One server of the OpenAI protocol: asks through the `openai` client, once, and names whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from kernelwright.policies.base import PolicyError, PolicyRefused, PolicyUnavailable, PromptForm, Trouble, Value
from kernelwright.policies.model_identity import Identity, identity_of, weights_revision
from kernelwright.policies.openai.reply import Models, error_of_status, parse_json, unavailable
from kernelwright.policies.policy_card import read_cards

MAX_REPLY_BYTES = 64 << 20
"""Bytes; an answer without an end is cut there, or when its time is over."""
_LISTING_SECONDS = 10.0
_NO_KEY = "none"


class ServedModel(Value):
    """The properties that a server reports of itself and its model."""

    is_vllm: bool = False
    """Whether the server accepts vLLM's own fields: token ids, top_k, and a seed for each request."""
    context: int | None = None
    root: str | None = None
    """The folder or hub name that the server was started with."""
    revision: str | None = None
    """The revision of the weights, where the server's model folder is on this machine."""
    adapter_revisions: dict[str, str | None] = {}
    identity: Identity = Identity()
    prompt_form: PromptForm = PromptForm.CHAT


class UnknownField(Exception):
    """The server names a field of the request that it does not take."""

    def __init__(self, field: str, refusal: PolicyError) -> None:
        super().__init__(field)
        self.field, self.refusal = field, refusal


class Connection:
    """A connection to a server, for use from one event loop; `url` is checked at once."""

    def __init__(self, model: str, url: str, key: str | None, at_once: int, timeout: float) -> None:
        self.url = url
        self._model, self._timeout = model, timeout
        _check_address(url)
        self._client = _client(url, key, timeout)
        self._gate = asyncio.Semaphore(at_once)
        self._door = asyncio.Lock()
        self._served: ServedModel | None = None

    async def close(self) -> None:
        """Closes the client's connections, within its event loop."""
        await self._client.close()

    async def chat(self, body: dict[str, Any]) -> Any:
        """Sends a chat request and returns the decoded answer. Raises UnknownField where the server refuses one field
        by name.
        """
        async with self._gate:
            return await self._read(self._client.chat.completions.with_streaming_response.create, self._timeout, body)

    async def served(self) -> ServedModel:
        """Reads /models once. Where that fails temporarily, the server is treated as a plain one and asked again next
        time.
        """
        async with self._door:
            if self._served is not None:
                return self._served
            call = self._client.models.with_streaming_response.list
            try:
                content = await self._read(call, min(_LISTING_SECONDS, self._timeout), {})
                self._served = await asyncio.to_thread(
                    served_model, Models.model_validate(content), self._model, self.url
                )
            except ValidationError:
                self._served = ServedModel()
            except PolicyUnavailable as error:
                if error.trouble in (Trouble.CONNECTION, Trouble.TIMEOUT, Trouble.BUSY):
                    raise
                return ServedModel()
            except ModelNotServed:
                raise
            except PolicyRefused:
                self._served = ServedModel()
            return self._served

    async def _read(self, call: Any, seconds: float, body: dict[str, Any]) -> Any:
        """The JSON of one answer, whole, within `seconds` and MAX_REPLY_BYTES; every failure is a PolicyError."""
        import openai

        try:
            async with _within_time_limit(seconds, self.url), call(**body) as response:
                content_type = response.headers.get("content-type", "")
                return parse_json(await _read_body(response, self.url), content_type, self.url)
        except openai.APIStatusError as error:
            refusal = error_of_status(error.status_code, error.response.headers, error.body, self._model, self.url)
            if error.status_code in (400, 422) and error.param and refusal.trouble is Trouble.REQUEST:
                raise UnknownField(error.param, refusal) from error
            raise refusal from error
        except _transport_errors() as error:
            raise unavailable(error, self.url) from error


def served_model(models: Models, model: str, url: str) -> ServedModel:
    """Plain, unless a vLLM server lists the model; reads the model's folder where it is on this machine."""
    listed = {entry.id: entry for entry in models.data}
    if not any(entry.owned_by == "vllm" for entry in models.data):
        return ServedModel()
    if model not in listed:
        raise ModelNotServed(f"{url} has no model {model!r}: it serves {', '.join(sorted(listed))}", Trouble.MODEL)
    base = listed.get(listed[model].parent or model, listed[model])
    folder = Path(base.root or "")
    is_here = bool(base.root) and (folder / "config.json").is_file()
    return ServedModel(
        is_vllm=True,
        context=base.max_model_len,
        root=base.root,
        revision=weights_revision(folder) if is_here else None,
        adapter_revisions={entry.id: weights_revision(Path(entry.root or "")) for entry in models.data if entry.parent},
        identity=_identity_of_folder(folder) if is_here else Identity(),
        prompt_form=read_cards(folder).prompt_form if is_here else PromptForm.CHAT,
    )


class ModelNotServed(PolicyRefused):
    """The server lists its models, and this is none of them."""


def _identity_of_folder(folder: Path) -> Identity:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        return Identity()
    return identity_of(AutoTokenizer.from_pretrained(folder))


def _client(url: str, key: str | None, timeout: float) -> Any:
    """openai's own retries are off: `Patient` is the one place that asks again."""
    try:
        import openai
    except ImportError as error:
        raise PolicyRefused("openai is not installed: pip install openai", Trouble.NOT_INSTALLED) from error
    return openai.AsyncOpenAI(api_key=key or _NO_KEY, base_url=url, max_retries=0, timeout=timeout)


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise PolicyRefused(f"{url} is not an address: give it as http://HOST:PORT/v1", Trouble.NAME)


@asynccontextmanager
async def _within_time_limit(seconds: float, url: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise PolicyUnavailable(f"{url} did not finish in {seconds:.0f} s", Trouble.TIMEOUT) from error


async def _read_body(response: Any, url: str) -> bytes:
    body = bytearray()
    async for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MAX_REPLY_BYTES:
            raise PolicyUnavailable(
                f"{url} sent a reply that does not end: reading stopped after {len(body)} bytes", Trouble.NONSENSE
            )
    return bytes(body)


def _transport_errors() -> tuple[type[Exception], ...]:
    """openai wraps what fails while it sends; what fails while the body is read comes as httpx made it."""
    import openai

    found: list[type[Exception]] = [openai.OpenAIError]
    for module in ("httpx", "httpx2"):
        try:
            library = __import__(module)
        except ImportError:
            continue
        found += [library.HTTPError, library.InvalidURL, library.StreamError]
    return tuple(found)

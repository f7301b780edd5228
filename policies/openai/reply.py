"""The replies of a /v1/chat/completions server: their form, checked, and their errors, classified."""

from __future__ import annotations

import email.utils
import json
import time
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from kernelwright.policies.base import (
    FinishReason,
    PolicyError,
    PolicyRefused,
    PolicyUnavailable,
    Trouble,
    Usage,
    valid_logprobs,
)

_FINISH = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "content_filter": FinishReason.FILTERED}
_CHARACTERS_A_TOKEN = 4
_QUOTED_CHARACTERS = 200
"""Largest number of characters of a server's own message that is quoted."""


class _TokenLogprob(BaseModel):
    token: str = ""
    logprob: float


class _Logprobs(BaseModel):
    content: list[_TokenLogprob] | None = None


class _MessageText(BaseModel):
    content: str | None = None


class Choice(BaseModel):
    """One completion in a reply of a server that speaks OpenAI's protocol."""

    message: _MessageText
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None

    def finish(self) -> FinishReason:
        """Returns the reason why the answer ended, OTHER where the server's word for it is unknown."""
        return _FINISH.get(self.finish_reason or "", FinishReason.OTHER)

    def sound_logprobs(self) -> tuple[float, ...] | None:
        """Returns one log-prob for each token id where the server gives ids; None where any is missing or not a
        log-prob.
        """
        if self.logprobs is None or not self.logprobs.content:
            return None
        values = [entry.logprob for entry in self.logprobs.content]
        return valid_logprobs(values, len(values) if self.token_ids is None else len(self.token_ids))


class _CachedTokens(BaseModel):
    cached_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)
    prompt_tokens_details: _CachedTokens | None = None


class Reply(BaseModel):
    """A reply of `/v1/chat/completions`, as far as it is used."""

    choices: list[Choice] = Field(min_length=1)
    prompt_token_ids: list[int] | None = None
    usage: _Usage | None = None
    system_fingerprint: str | None = None

    def spent(self, prompt: str) -> Usage:
        """Tokens as the server counts them; where it does not, a token is guessed for every four characters, and marked
        so.
        """
        if self.usage is None:
            text = self.choices[0].message.content or ""
            counts = [-(-len(part) // _CHARACTERS_A_TOKEN) for part in (prompt, text)]
            return Usage(prompt_tokens=counts[0], completion_tokens=counts[1], estimated=True)
        details = self.usage.prompt_tokens_details
        return Usage(
            prompt_tokens=self.usage.prompt_tokens,
            completion_tokens=self.usage.completion_tokens,
            cached_prompt_tokens=(details and details.cached_tokens) or 0,
        )


class _Model(BaseModel):
    id: str
    owned_by: str | None = None
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None


class Models(BaseModel):
    """A reply of `/v1/models`."""

    data: list[_Model]


def parse_json(body: bytes, content_type: str, url: str) -> Any:
    """Refuses another kind of document (a wrong address); broken JSON is worth asking again."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        if "json" not in content_type.lower():
            raise PolicyRefused(
                f"{url} answers {content_type or 'without a content type'}, not JSON: "
                "is the address right (most end in /v1)?",
                Trouble.NOT_THE_PROTOCOL,
            ) from error
        raise PolicyUnavailable(f"{url} sent JSON that cannot be read ({len(body)} bytes)", Trouble.NONSENSE) from error


def parse_reply(content: Any, url: str) -> Reply:
    """Reads a decoded JSON reply. Raises PolicyUnavailable where it does not have the form of one."""
    try:
        return Reply.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "reply"
        raise PolicyUnavailable(
            f"{url} sent a reply that is not in the form of this API: {where}: {first['msg']}", Trouble.NONSENSE
        ) from error


def error_of_status(status: int, headers: Any, content: Any, model: str, url: str) -> PolicyUnavailable | PolicyRefused:
    """An HTTP error as ours. `content` is the decoded body: only its `code` and `message` are looked at."""
    inner = content.get("error", content) if isinstance(content, dict) else {}
    inner = inner if isinstance(inner, dict) else {"message": inner}
    code = str(inner.get("code") or "")
    said = _quoted(inner.get("message") or inner.get("detail"))
    if code == "insufficient_quota" or status == 402:
        return PolicyRefused(f"{url} says that there is no credit left: top up, or name another policy", Trouble.QUOTA)
    if status == 429:
        return PolicyUnavailable(f"{url} is busy (429){said}", Trouble.BUSY, retry_after=_retry_after(headers))
    if status in (408, 409, 425) or status >= 500:
        return PolicyUnavailable(f"{url} failed ({status}){said}", Trouble.SERVER, retry_after=_retry_after(headers))
    if status in (401, 403):
        return PolicyRefused(
            f"{url} does not accept the key ({status}): set OPENAI_API_KEY to a key for this server", Trouble.KEY
        )
    if status == 404:
        return PolicyRefused(f"{url} has no model {model!r} (404){said}: check the name and the address", Trouble.MODEL)
    if code == "context_length_exceeded" or status == 413 or inner.get("param") == "input_tokens":
        return PolicyRefused(f"the prompt does not fit {model}{said}: shorten it or lower max_tokens", Trouble.CONTEXT)
    return PolicyRefused(f"{url} refuses the request ({status}){said}", Trouble.REQUEST)


def unavailable(error: BaseException, url: str) -> PolicyError:
    """A transport error of httpx (through openai, or while the body is read), told apart by its class's own name."""
    names = {cause.__name__ for link in _chain(error) for cause in type(link).__mro__}
    if names & {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"}:
        return PolicyRefused(f"{url} is not an address: give it as http://HOST:PORT/v1", Trouble.NAME)
    if names & {"TimeoutException", "APITimeoutError", "TimeoutError"}:
        return PolicyUnavailable(f"{url} did not answer in time", Trouble.TIMEOUT)
    if names & {"RemoteProtocolError", "ReadError"}:
        return PolicyUnavailable(f"{url} cut its answer off", Trouble.CUT_OFF)
    return PolicyUnavailable(f"cannot reach {url}: is the server up?", Trouble.CONNECTION)


def _chain(error: BaseException | None) -> list[BaseException]:
    links: list[BaseException] = []
    while error is not None and len(links) < 10:
        links.append(error)
        error = error.__cause__ or error.__context__
    return links


def _quoted(words: Any) -> str:
    """A server's words, as data: one line, printable, capped."""
    text = " ".join(str(words or "").split())
    text = "".join(character for character in text if character.isprintable())
    return f": {text[:_QUOTED_CHARACTERS]}" if text else ""


def _retry_after(headers: Any) -> float | None:
    """Returns the seconds to wait, from `retry-after-ms` or `Retry-After` in either of its forms (RFC 9110, 10.2.3)."""
    milliseconds, value = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds:
            return max(0.0, float(milliseconds) / 1000)
        return max(0.0, float(value)) if value else None
    except ValueError:
        date = email.utils.parsedate_tz(value or "")
        return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())

"""Reads the replies of a /v1/chat/completions server. Only the text must be there; an unreadable field is ignored."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from kernelwright.policies.base import valid_logprobs
from kernelwright.policies.http.bodies import Stream
from kernelwright.policies.http.connection import ServerAnswer
from kernelwright.policies.http.errors import error_without_reply
from kernelwright.policies.http.model_reply import (
    COUNT,
    OBJECT,
    TEXT_ADAPTER,
    TOKEN_IDS,
    MessageParts,
    ModelReply,
    OptionalFields,
    finish_reason,
    message_parts,
)
from kernelwright.policies.http.other_apis import reply_of_another_api
from kernelwright.policies.http.server import ModelServer

_REVISION_CHARACTERS = 200
_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")
_LIST_FIELDS = ("tool_calls", "token_ids")


class _TokenLogprob(BaseModel):
    model_config = ConfigDict(extra="ignore")

    logprob: float


_LOGPROBS: TypeAdapter[list[_TokenLogprob]] = TypeAdapter(list[_TokenLogprob])


def parse_reply(answer: ServerAnswer, server: ModelServer) -> ModelReply:
    """Parses a decoded answer. Raises PolicyError for an answer without a reply: the reported
    error, or the missing part.
    """
    content = merge_stream(answer.content) if isinstance(answer.content, Stream) else answer.content
    choice, reason = _first_choice(content)
    parts = None if choice is None else _message_parts(choice)
    if choice is None or parts is None:
        is_chat = isinstance(content, dict) and "choices" in content
        other = None if is_chat else reply_of_another_api(content)
        if other is not None:
            return other
        raise error_without_reply(
            content, answer.raw, reason or "no message in the first choice", server
        )
    fields = OptionalFields()
    usage = fields.read("usage", content.get("usage"), OBJECT) or {}
    details = fields.read("prompt_tokens_details", usage.get("prompt_tokens_details"), OBJECT) or {}
    ids = fields.read("token_ids", choice.get("token_ids"), TOKEN_IDS)
    prompt_ids = fields.read("prompt_token_ids", content.get("prompt_token_ids"), TOKEN_IDS)
    revision = fields.read("system_fingerprint", content.get("system_fingerprint"), TEXT_ADAPTER)
    return ModelReply(
        text=parts.stored_text,
        kind=parts.kind,
        finish=finish_reason(
            fields.read("finish_reason", choice.get("finish_reason"), TEXT_ADAPTER)
        ),
        prompt_tokens=fields.read("prompt_tokens", usage.get("prompt_tokens"), COUNT),
        completion_tokens=fields.read("completion_tokens", usage.get("completion_tokens"), COUNT),
        cached_prompt_tokens=fields.read("cached_tokens", details.get("cached_tokens"), COUNT),
        prompt_token_ids=None if prompt_ids is None else tuple(prompt_ids),
        token_ids=None if ids is None else tuple(ids),
        logprobs=_logprobs(choice.get("logprobs"), ids, fields),
        revision=None if revision is None else revision[:_REVISION_CHARACTERS],
        unreadable=tuple(fields.unreadable),
    )


def _first_choice(content: object) -> tuple[dict[str, Any] | None, str]:
    """Returns the first choice, or None and the part of the form that is missing."""
    if not isinstance(content, dict):
        return None, "not a JSON object"
    choices = content.get("choices")
    if not isinstance(choices, list):
        return None, "no list of choices"
    if not choices:
        return None, "an empty list of choices"
    choice = choices[0]
    if not isinstance(choice, dict):
        return None, "the first choice is no object"
    if choice.get("error"):
        return None, "an error in place of the first choice"
    return choice, ""


def _message_parts(choice: dict[str, Any]) -> MessageParts | None:
    """Returns the parts of a choice's message; None without a message, or for content of an
    unknown form.
    """
    message = next(
        (choice[name] for name in ("message", "delta", "text") if choice.get(name) is not None),
        None,
    )
    if isinstance(message, str):
        return message_parts(message)
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    if content is not None and not isinstance(content, str | list | dict):
        return None
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    calls = message.get("tool_calls") or message.get("function_call")
    return message_parts(content, reasoning, message.get("refusal"), calls)


def _logprobs(
    value: object, ids: list[int] | None, fields: OptionalFields
) -> tuple[float, ...] | None:
    """Returns one log-prob per token id; None if they do not match the ids."""
    content = value.get("content") if isinstance(value, dict) else None
    if ids is None or content is None:
        return None  # without ids no training can use them
    entries = fields.read("logprobs", content, _LOGPROBS)
    return valid_logprobs(
        None if entries is None else [entry.logprob for entry in entries], len(ids)
    )


def merge_stream(chunks: list[Any]) -> dict[str, Any]:
    """Joins the chunks of a stream into the reply of a request without streaming."""
    reply: dict[str, Any] = {}
    choice: dict[str, Any] = {}
    for chunk in chunks:
        if not isinstance(chunk, dict):
            continue
        reply |= {
            name: value for name, value in chunk.items() if value is not None and name != "choices"
        }
        choices = chunk.get("choices")
        if "choices" not in chunk and isinstance(chunk.get("message"), dict):
            _merge_choice(choice, chunk)  # Ollama's own form: a message a chunk
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            _merge_choice(choice, choices[0])
    return reply | ({"choices": [choice]} if choice else {})


def _merge_choice(choice: dict[str, Any], chunk: dict[str, Any]) -> None:
    message = choice.setdefault("message", {})
    delta = chunk.get("delta") or chunk.get("message")
    for name, value in delta.items() if isinstance(delta, dict) else ():
        if name in _TEXT_FIELDS and isinstance(value, str):
            message[name] = str(message.get(name) or "") + value
        elif name in _LIST_FIELDS and isinstance(value, list):
            message[name] = [*(message.get(name) or []), *value]
        elif value is not None:
            message[name] = value
    if isinstance(chunk.get("text"), str):
        message["content"] = str(message.get("content") or "") + chunk["text"]
    if isinstance(chunk.get("token_ids"), list):
        choice["token_ids"] = [*choice.get("token_ids", []), *chunk["token_ids"]]
    logprobs = chunk.get("logprobs")
    if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
        earlier = choice.setdefault("logprobs", {"content": []})["content"]
        earlier += logprobs["content"]
    choice |= {
        name: chunk[name] for name in ("finish_reason", "error") if chunk.get(name) is not None
    }


class _Model(BaseModel):
    id: str
    owned_by: str | None = None
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None


class Models(BaseModel):
    """Reply of the endpoint `/v1/models`."""

    data: list[_Model]


def parse_models(content: object) -> Models | None:
    """Parses a listing of models; None for another form."""
    try:
        return Models.model_validate(content)
    except ValidationError:
        return None

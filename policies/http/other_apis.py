"""Reads replies in the form of an API other than the requested one, so that paid answers are
used.

    Anthropic          {"content": [{"type": "text", "text": ...}], "stop_reason": ..., "usage": {"input_tokens": ...}}
    Gemini             {"candidates": [{"content": {"parts": [{"text": ...}]}, "finishReason": ...}]}
    Ollama             {"message": {"content": ...}, "done_reason": ...} or {"response": ...}
    OpenAI Responses   {"output": [{"type": "message", "content": [{"type": "output_text", "text": ...}]}]}

`model_reply.message_parts` sorts the parts of a message by type at any depth, so only the names
of the surrounding
fields are listed here.
"""

from __future__ import annotations

from typing import Any

from kernelwright.policies.base import ReplyKind
from kernelwright.policies.http.model_reply import (
    COUNT,
    TEXT_ADAPTER,
    ModelReply,
    OptionalFields,
    finish_reason,
    message_parts,
)

_MESSAGES = (
    "choices",
    "candidates",
    "outputs",
    "output",
    "content",
    "message",
    "response",
    "generated_text",
)
"""Fields that hold the message, or a list of alternatives or of parts."""
_ALTERNATIVES = frozenset({"choices", "candidates", "outputs"})
_FINISH = (
    "finish_reason",
    "finishReason",
    "stop_reason",
    "stopReason",
    "done_reason",
    "reason",
    "status",
)
_PROMPT_COUNTS = (
    "prompt_tokens",
    "input_tokens",
    "inputTokens",
    "promptTokenCount",
    "prompt_eval_count",
)
_COMPLETION_COUNTS = (
    "completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount", "eval_count",
)  # fmt: skip


def reply_of_another_api(content: object) -> ModelReply | None:
    """Returns the reply in an answer of any known API; None for an error or an answer without a
    message.
    """
    if not isinstance(content, dict) or content.get("error"):
        return None
    name = next((name for name in _MESSAGES if content.get(name)), "")
    message = content.get(name)
    first = message[0] if name in _ALTERNATIVES and isinstance(message, list) else message
    if name == "message" and isinstance(first, str):
        return None  # the words of an error: {"message": "the model is loading"}
    parts = message_parts(first)
    if parts.kind is ReplyKind.EMPTY:
        return None
    fields = OptionalFields()
    around = [content.get("incomplete_details"), first, content]
    usage = [content.get("usage"), content.get("usageMetadata"), content]
    return ModelReply(
        text=parts.stored_text,
        kind=parts.kind,
        finish=finish_reason(
            fields.read("finish_reason", _first_of(around, _FINISH), TEXT_ADAPTER)
        ),
        prompt_tokens=fields.read("prompt_tokens", _first_of(usage, _PROMPT_COUNTS), COUNT),
        completion_tokens=fields.read(
            "completion_tokens", _first_of(usage, _COMPLETION_COUNTS), COUNT
        ),
        unreadable=tuple(fields.unreadable),
    )


def _first_of(objects: list[Any], names: tuple[str, ...]) -> Any:
    """Returns the first value found under any of the names; None if there is none."""
    values = (
        entry[name]
        for entry in objects
        if isinstance(entry, dict)
        for name in names
        if entry.get(name)
    )
    return next(values, None)

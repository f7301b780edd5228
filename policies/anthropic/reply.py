"""Reads the replies of a server of Anthropic's Messages API. Only the text must be there."""

from __future__ import annotations

from kernelwright.policies.http.connection import ServerAnswer
from kernelwright.policies.http.errors import error_without_reply
from kernelwright.policies.http.model_reply import (
    COUNT,
    OBJECT,
    TEXT_ADAPTER,
    ModelReply,
    OptionalFields,
    finish_reason,
    message_parts,
)
from kernelwright.policies.http.other_apis import reply_of_another_api
from kernelwright.policies.http.server import ModelServer

_PROMPT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""Counts whose sum is the prompt's tokens."""


def parse_reply(answer: ServerAnswer, server: ModelServer) -> ModelReply:
    """Parses a decoded answer. Raises PolicyError for an answer without a reply: the reported
    error, or the missing part.
    """
    content = answer.content
    blocks = content.get("content") if isinstance(content, dict) else None
    if not isinstance(blocks, list | str):
        other = reply_of_another_api(content)
        if other is not None:
            return other
        raise error_without_reply(content, answer.raw, "no content", server)
    parts = message_parts(blocks)
    fields = OptionalFields()
    usage = fields.read("usage", content.get("usage"), OBJECT) or {}
    counts = {name: fields.read(name, usage.get(name), COUNT) for name in _PROMPT_COUNTS}
    prompt = sum(count or 0 for count in counts.values())
    return ModelReply(
        text=parts.stored_text,
        kind=parts.kind,
        finish=finish_reason(fields.read("stop_reason", content.get("stop_reason"), TEXT_ADAPTER)),
        prompt_tokens=None if counts["input_tokens"] is None else prompt,
        completion_tokens=fields.read("output_tokens", usage.get("output_tokens"), COUNT),
        cached_prompt_tokens=counts["cache_read_input_tokens"],
        unreadable=tuple(fields.unreadable),
    )

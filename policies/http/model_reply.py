"""The reply of a model, whatever protocol it came by, and the reader of its optional fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from kernelwright.policies.base import FinishReason, ReplyKind, Usage, Value

T = TypeVar("T")
_CHARACTERS_A_TOKEN = 4
_LARGEST_COUNT = 2**31 - 1
COUNT: TypeAdapter[int] = TypeAdapter(Annotated[int, Field(ge=0, le=_LARGEST_COUNT)])
TEXT_ADAPTER: TypeAdapter[str] = TypeAdapter(str)
OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
TOKEN_IDS: TypeAdapter[list[int]] = TypeAdapter(
    list[Annotated[int, Field(ge=0, le=_LARGEST_COUNT)]]
)
_TEXTS_OF_PARTS = ("text", "value", "thinking", "reasoning", "refusal", "content", "summary")
_FINISH_REASONS = {
    FinishReason.STOP: (
        "stop", "completed", "complete", "end_turn", "stop_sequence", "eos", "tool_calls", "function_call", "tool_use",
    ),
    FinishReason.LENGTH: ("length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"),
    FinishReason.FILTERED: ("content_filter", "refusal", "safety"),
}  # fmt: skip


class OptionalFields:
    """Reads optional fields of a reply: an unreadable field is ignored, and its name is recorded."""

    def __init__(self) -> None:
        self.unreadable: list[str] = []

    def read(self, name: str, value: object, kind: TypeAdapter[T]) -> T | None:
        """Returns the value of a field; None for a missing or unreadable value."""
        if value is None:
            return None
        try:
            return kind.validate_python(value)
        except (ValidationError, RecursionError, OverflowError):
            self.unreadable.append(name)
            return None


class ModelReply(Value):
    """A reply of a model: its text, and its readable optional fields."""

    text: str
    kind: ReplyKind = ReplyKind.TEXT
    finish: FinishReason = FinishReason.OTHER
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_prompt_tokens: int | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    revision: str | None = None
    unreadable: tuple[str, ...] = ()
    """Names of unreadable optional fields."""

    def usage(self, prompt: str) -> Usage:
        """Returns the server's token counts; missing counts are estimated from the text."""
        return count_tokens(
            prompt, self.text, self.prompt_tokens, self.completion_tokens, self.cached_prompt_tokens
        )


def count_tokens(
    prompt: str,
    text: str,
    prompt_tokens: int | None,
    completion_tokens: int | None,
    cached: int | None = None,
) -> Usage:
    """Returns a usage; a missing count is estimated as one token per four characters."""
    counts = [
        -(-len(part) // _CHARACTERS_A_TOKEN) if count is None else count
        for part, count in ((prompt, prompt_tokens), (text, completion_tokens))
    ]
    return Usage(
        prompt_tokens=counts[0],
        completion_tokens=counts[1],
        cached_prompt_tokens=min(cached or 0, counts[0]),
        estimated=prompt_tokens is None or completion_tokens is None,
    )


def finish_reason(word: str | None) -> FinishReason:
    """Returns the reason why a reply ended; OTHER for an unknown word."""
    reason_of_word = {word: reason for reason, words in _FINISH_REASONS.items() for word in words}
    return reason_of_word.get((word or "").lower(), FinishReason.OTHER)


class MessageParts(Value):
    """Parts of a model's message, sorted by type."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    tool_calls: tuple[Any, ...] = ()

    @property
    def kind(self) -> ReplyKind:
        """Returns the kind of message; a tool call takes precedence over text."""
        if self.tool_calls:
            return ReplyKind.TOOL_CALL
        if self.text.strip():
            return ReplyKind.TEXT
        if self.refusal.strip():
            return ReplyKind.REFUSAL
        return ReplyKind.REASONING if self.reasoning.strip() else ReplyKind.EMPTY

    @property
    def stored_text(self) -> str:
        """Returns the text behind the reasoning in `<think>` marks; for a message without text, its
        tool calls or its refusal.
        """
        thought = f"<think>\n{self.reasoning}\n</think>\n" if self.reasoning.strip() else ""
        if self.text.strip():
            return f"{thought}\n{self.text}" if thought else self.text
        if self.tool_calls:
            calls = [json.dumps(call, default=str) for call in self.tool_calls]
            return "\n".join(f"<tool_call>{call}</tool_call>" for call in calls)
        if self.refusal.strip():
            return self.refusal
        return thought


def text_of_parts(content: object) -> str:
    """Joins the texts of nested content: a text, an object with a `text`, or a list of them."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(text_of_parts(part) for part in content)
    if isinstance(content, dict):
        nested = [content[name] for name in _TEXTS_OF_PARTS if content.get(name)]
        return text_of_parts(nested[0]) if nested else ""
    return ""


def _kind_of_part(part: object) -> str:
    """Returns the type of a part of a message; Gemini marks a thought and a call by a field instead."""
    if not isinstance(part, dict):
        return ""
    if part.get("thought") is True:
        return "thinking"
    return str(part.get("type") or ("function_call" if "functionCall" in part else ""))


def _flat_parts(content: object) -> Iterator[Any]:
    """Yields the parts of a message, those of a message inside of it in its place: `{"content": {"parts": [...]}}`."""
    if isinstance(content, list):
        for part in content:
            yield from _flat_parts(part)
        return
    inner = content if isinstance(content, dict) and not content.get("text") else {}
    # A message inside a message: `{"content": {"parts": [...]}}`.
    nested = next(
        (inner[name] for name in ("message", "content", "parts") if inner.get(name)), None
    )
    if (
        nested is None
        or "reason" in str(inner.get("type", ""))
        or "tool" in str(inner.get("type", ""))
    ):
        yield content
        return
    for name in ("thinking", "reasoning_content", "reasoning"):
        if isinstance(inner.get(name), str):
            yield {"type": "reasoning", "text": inner[name]}
    yield from _flat_parts(nested)
    yield from (
        {"type": "tool_call", **call}
        for call in inner.get("tool_calls") or ()
        if isinstance(call, dict)
    )


def message_parts(
    content: object, reasoning: object = None, refusal: object = None, tool_calls: object = None
) -> MessageParts:
    """Sorts a message's content, a text or a list of typed parts, and the fields beside it.

    Parts of an unknown type with a text are text; reasoning, refusals and calls of tools are known by their type.
    """
    texts, thoughts, refusals, calls = [], [text_of_parts(reasoning)], [text_of_parts(refusal)], []
    for part in _flat_parts(content):
        kind = _kind_of_part(part)
        if "think" in kind or "reason" in kind:
            thoughts.append(text_of_parts(part))
        elif "refusal" in kind:
            refusals.append(text_of_parts(part))
        elif "tool" in kind or "function" in kind:
            calls.append(part)
        else:
            texts.append(text_of_parts(part))
    calls += tool_calls if isinstance(tool_calls, list) else [tool_calls] if tool_calls else []
    return MessageParts(
        text="".join(texts),
        reasoning="".join(thoughts),
        refusal="".join(refusals),
        tool_calls=tuple(calls),
    )

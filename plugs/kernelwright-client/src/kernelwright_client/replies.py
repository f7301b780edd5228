"""The candidate in a policy's reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright_client.fenced_code import answer_of, extract_code


def code_of(reply: str | Sequence[Mapping[str, Any]] | None) -> str:
    """Returns the candidate's program in a reply, else the answer as it is: the judge says why it is no code.

    reply: a text, or the messages of a chat, of which the last one of the assistant counts.
    """
    text = text_of(reply)
    return extract_code(text) or f"{answer_of(text).strip()}\n"


def text_of(reply: str | Sequence[Mapping[str, Any]] | None) -> str:
    """Returns a reply's text: of a chat, the last message of the assistant."""
    if reply is None:
        return ""
    if isinstance(reply, str):
        return reply
    answers = [message for message in reply if message.get("role") == "assistant"]
    return content_of(answers[-1].get("content")) if answers else ""


def content_of(content: Any) -> str:
    """Returns the text of a message's content: a text, or the text parts of a list."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or () if isinstance(part, Mapping))

"""The candidate in a policy's reply."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

FENCED = re.compile(r"```(?:[Pp]ython|py)?[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL)
THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


def code_of(reply: str | Sequence[Mapping[str, Any]] | None) -> str:
    """The last fenced block that defines `ModelNew`, else the last fenced block, else the reply as it is: what is no
    code is for the judge to say.

    reply: a text, or the messages of a chat, of which the last one of the assistant counts.
    """
    text = text_of(reply)
    answer = THOUGHT.sub("", text)
    blocks = FENCED.findall(answer)
    defining = [block for block in blocks if "ModelNew" in block]
    return (defining or blocks or [answer])[-1].strip() + "\n"


def text_of(reply: str | Sequence[Mapping[str, Any]] | None) -> str:
    """A reply's text: of a chat, what the assistant wrote last."""
    if reply is None:
        return ""
    if isinstance(reply, str):
        return reply
    said = [message for message in reply if message.get("role") == "assistant"]
    return content_of(said[-1].get("content")) if said else ""


def content_of(content: Any) -> str:
    """The text of a message's content: a text, or the text parts of a list."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or () if isinstance(part, Mapping))

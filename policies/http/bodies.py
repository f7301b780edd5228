"""Decodes the body of an answer: JSON, or a stream of JSON objects although none was asked for."""

from __future__ import annotations

import json
from typing import Any

from kernelwright.policies.base import PolicyRefused, Trouble
from kernelwright.policies.http.errors import UnreadableAnswer
from kernelwright.policies.http.server import Server


class Stream(list[Any]):
    """The decoded objects of a stream: server-sent events, or a JSON object a line."""


def decode_body(body: bytes, content_type: str, server: Server) -> Any:
    """Returns the decoded JSON, or a Stream.

    Raises:
        PolicyRefused: Another kind of document; the address is wrong.
        UnreadableAnswer: Broken JSON, which is worth asking for again.
    """
    text = body.decode("utf-8-sig", "replace")
    try:
        return _loads(text)
    except (ValueError, RecursionError):
        stream = _stream(text)
    if stream is not None:
        return stream
    quoted = server.quotation(text)
    if "json" in content_type.lower() or "event-stream" in content_type.lower():
        message = f"{server.url} sent JSON that cannot be read ({len(body)} bytes){quoted}"
        raise UnreadableAnswer(message, Trouble.NONSENSE, text)
    raise PolicyRefused(
        f"{server.url} answers {content_type or 'without a content type'}, not JSON: "
        f"is the address right (most end in /v1)?{' It says' + quoted if quoted else ''}",
        Trouble.NOT_THE_PROTOCOL,
    )


def _loads(text: str) -> Any:
    return json.loads(text, strict=False)  # servers send raw line ends within strings


def _stream(text: str) -> Stream | None:
    """Returns the objects of a stream; None where any line holds something else."""
    objects = Stream()
    for line in text.splitlines():
        data = line.strip().removeprefix("data:").strip()
        if not data or data == "[DONE]" or data.startswith((":", "event:", "id:", "retry:")):
            continue
        try:
            objects.append(_loads(data))
        except (ValueError, RecursionError):
            return objects if objects else None  # cut off in the middle of an event
    return objects if objects else None

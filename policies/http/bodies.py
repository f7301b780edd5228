"""Decodes the body of an answer: JSON, or a stream of JSON objects although none was asked for."""

from __future__ import annotations

import email.message
import json
from collections.abc import Iterator
from typing import Any

from kernelwright.policies.base import PolicyRefused, Trouble
from kernelwright.policies.http.errors import UnreadableAnswer
from kernelwright.policies.http.server import ModelServer


class Stream(list[Any]):
    """The decoded objects of a stream: server-sent events, or a JSON object a line."""


def decode_text(body: bytes, content_type: str) -> str:
    """Returns the body as text: in the encoding shown by its first bytes (JSON is UTF-8, -16 or -32), else in the
    charset of the content type.
    """
    message = email.message.Message()
    message["content-type"] = content_type
    for encoding in (json.detect_encoding(body), message.get_content_charset("utf-8")):
        try:
            return body.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return body.decode("utf-8", "replace")


def decode_body(text: str, content_type: str, server: ModelServer) -> Any:
    """Returns the decoded JSON, or a Stream.

    Raises:
        PolicyRefused: Another kind of document; the address is wrong.
        UnreadableAnswer: Broken JSON, which is worth asking for again.
    """
    # In order: a document, a stream, then an error by content type.
    content = whole_json(text)
    if content is not None:
        return content
    stream = _stream(text)
    if stream is not None:
        return stream
    quoted = server.quotation(text)
    if not text.strip():
        raise UnreadableAnswer(f"{server.url} sent an empty answer", Trouble.NONSENSE, text)
    if "json" in content_type.lower() or "event-stream" in content_type.lower():
        message = f"{server.url} sent JSON that cannot be read ({len(text)} characters){quoted}"
        raise UnreadableAnswer(message, Trouble.NONSENSE, text)
    raise PolicyRefused(
        f"{server.url} answers {content_type or 'without a content type'}, not JSON: "
        f"is the address right (most end in /v1)?{' It says' + quoted if quoted else ''}",
        Trouble.NOT_THE_PROTOCOL,
    )


def whole_json(text: str) -> Any:
    """Returns the content of a JSON document, unwrapped from a list of length one; None for an
    incomplete document.
    """
    try:
        content = _loads(text)
    except (ValueError, RecursionError):
        return None
    return content[0] if isinstance(content, list) and len(content) == 1 else content


def _loads(text: str) -> Any:
    return json.loads(text, strict=False)  # servers send raw line ends within strings


def _stream(text: str) -> Stream | None:
    """Returns the objects of a stream up to the first undecodable line; None without objects."""
    objects = Stream()
    try:
        for lines in _events(text):
            for decoded in _objects_of(lines):
                objects.append(decoded)
    except (ValueError, RecursionError):
        pass  # cut off in the middle of an event
    return objects or None


def _objects_of(lines: list[str]) -> Iterator[Any]:
    """Yields the object of an event, whose data may go over several lines; else the object of each line.

    Raises ValueError and RecursionError at a line other than an object.
    """
    if len(lines) > 1 and (content := whole_json("\n".join(lines))) is not None:
        yield content
        return
    for line in lines:
        yield _loads(line)


def _events(text: str) -> Iterator[list[str]]:
    """Yields the data lines of each event of a stream, which an empty line ends."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        data = line.strip().removeprefix("data:").strip()
        if data and data != "[DONE]" and not data.startswith((":", "event:", "id:", "retry:")):
            lines.append(data)
        elif lines and not data:
            yield lines
            lines = []

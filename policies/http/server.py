"""The address of a model's server, and the quotation of its words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import field_validator

from kernelwright.policies.base import PolicyRefused, Trouble, Value

SHORTEST_SECRET = 8
"""Number of characters of the shortest masked key."""
MAX_QUOTED_CHARACTERS = 200
"""Largest number of quoted characters of a server's own message."""
_MAX_DEPTH = 4
_MARKUP = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_MARKUP_CHARACTERS = 20_000
"""Characters of a page looked through for words."""
_MESSAGE_FIELDS = (
    "message",
    "detail",
    "details",
    "error",
    "errors",
    "msg",
    "error_description",
    "title",
    "reason",
)


class ExtraFields(Value):
    """Fields of the user's own every request has."""

    reasoning_effort: str | None = None
    """How much a model reasons before it answers: low, medium, high, or the server's own word."""
    body: dict[str, Any] = {}
    """Fields of the request's JSON, which go over those of the sampling."""


class ModelServer(Value):
    """A model at an address, and the key for it."""

    model: str
    url: str
    key: str | None = None
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable the user sets to the key."""

    @field_validator("key")
    @classmethod
    def _strip_key(cls, key: str | None) -> str | None:
        """Removes the blanks and the line end a key has when it is read from a file."""
        return (key or "").strip() or None

    @property
    def base_url(self) -> str:
        """Returns the address without its query."""
        return self.url.partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        """Returns the query every request has, such as `api-version=preview`."""
        return dict(parse_qsl(self.url.partition("?")[2]))

    def check(self) -> None:
        """Raises PolicyRefused for an invalid URL, a URL with a password, or a key that no header
        can hold.
        """
        try:
            parts = urlsplit(self.url)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise self.no_address()
        if "@" in parts.netloc:
            raise PolicyRefused(
                f"the address of {parts.hostname} holds a password, which every run would store: leave it out, and set "
                f"{self.key_variable}",
                Trouble.NAME,
            )
        if self.key is not None and not (self.key.isascii() and self.key.isprintable()):
            raise PolicyRefused(
                f"{self.key_variable} holds a character that no key has: set it to the key alone",
                Trouble.KEY,
            )

    def no_address(self) -> PolicyRefused:
        """Returns the refusal of an invalid URL."""
        return PolicyRefused(
            f"{self.url} is not an address: give it as http://HOST:PORT/v1", Trouble.NAME
        )

    def quotation(self, content: object) -> str:
        """Quotes the server's message behind a colon; empty if the answer holds none.

        The words are data: one line, printable, capped, and without the key.
        """
        words = _without_markup(next(_messages(content, _MAX_DEPTH), ""))
        text = "".join(
            character for character in " ".join(words.split()) if character.isprintable()
        )
        # A key of a few characters is a stand-in where a server wants none, and part of ordinary words.
        if self.key and len(self.key) >= SHORTEST_SECRET:
            text = text.replace(self.key, "***")
        return f": {text[:MAX_QUOTED_CHARACTERS]}" if text else ""


def address_without(url: str, *endings: str) -> str:
    """Returns the address, with its query, without path endings appended by the client.

    `https://host/v1/messages?api-version=1` without "/messages" and "/v1" becomes
    `https://host?api-version=1`.
    """
    path, mark, query = url.strip().partition("#")[0].partition("?")
    path = path.rstrip("/")
    for ending in endings:
        path = path.removesuffix(ending).rstrip("/")
    return path + mark + query


def _without_markup(text: str) -> str:
    """Returns the words of an HTML page; another text as it is."""
    beginning = text[:_MARKUP_CHARACTERS]
    return _MARKUP.sub(" ", beginning) if beginning.lstrip().startswith("<") else text


def _messages(content: object, depth: int) -> Iterator[str]:
    """Yields the texts under the fields servers put their messages in, then the content itself
    as JSON.
    """
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for entry in content[:3]:
            yield from _messages(entry, depth - 1) if depth else ()
    elif isinstance(content, dict):
        fields = [content[name] for name in _MESSAGE_FIELDS if content.get(name)]
        for field in fields:
            yield from _messages(field, depth - 1) if depth else ()
        yield json.dumps(content, default=str)[: 2 * MAX_QUOTED_CHARACTERS]

"""Refuses a JSON body with more structure than any request needs, before decoding.

The decoder holds the interpreter's lock, so no request is answered meanwhile: 16 MiB with a million
keys take a second. A body consists mostly of candidates' texts; the bytes outside of strings and
the number of strings are small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from kernelwright.agent.serving.content import RequestRefused
from kernelwright.agent.serving.wire import MAX_BATCH, MAX_FIELDS, Code

MAX_STRINGS = 8 * MAX_BATCH * MAX_FIELDS
"""Number of keys and texts in the largest batch, whose submissions have a few objects each; decoded
in a tenth of a second.
"""
MAX_BYTES_OUTSIDE = 8 * MAX_STRINGS
"""Maximum number of bytes outside of strings in a body."""
GZIP_MAGIC = b"\x1f\x8b"
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
"""A JSON string. Possessive quantifiers, so the regex stores no backtracking state for millions of
characters.
"""


class StructureBoundRoute(APIRoute):
    """Route with a check of the body's structure in front of its handler."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns the route's handler behind the check."""
        handle = super().get_route_handler()

        async def handle_bounded(request: Request) -> Response:
            check_structure(await request.body())
            return await handle(request)

        return handle_bounded


def check_structure(body: bytes) -> None:
    """Raises RequestRefused for a body with too many strings, or too many bytes outside of strings.

    A compressed body is left to the decoder, which refuses its first byte with a clear message.
    """
    if body.startswith(GZIP_MAGIC):
        return
    outside, count = _STRING.subn(b"", body, count=MAX_STRINGS + 1)
    if count > MAX_STRINGS or len(outside) > MAX_BYTES_OUTSIDE:
        raise RequestRefused(
            Code.INVALID,
            f"the body has more structure than {MAX_BATCH} submissions have: send texts, and fewer at once",
        )

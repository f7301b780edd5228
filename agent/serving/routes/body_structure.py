"""Refuses a JSON body with more structure than any request has, before it is decoded.

The decoder holds the interpreter's lock, so that nobody is answered meanwhile: 16 MiB of a million keys take a second.
A body is mostly the texts of candidates; what is outside of strings, and the number of strings, is small.
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
"""Keys and texts of the largest batch, whose submissions have a few objects each; decoded in a tenth of a second."""
MAX_BYTES_OUTSIDE = 8 * MAX_STRINGS
GZIP_MAGIC = b"\x1f\x8b"
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
"""A JSON string; possessive, so that nothing is remembered of its millions of characters."""


class StructureBoundRoute(APIRoute):
    """A route that looks at the structure of a body first."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns the handler of the route, with the look before it."""
        handle = super().get_route_handler()

        async def handle_bounded(request: Request) -> Response:
            check_structure(await request.body())
            return await handle(request)

        return handle_bounded


def check_structure(body: bytes) -> None:
    """Raises RequestRefused for a body of too many strings, or too much outside of them.

    A compressed body is left to the decoder, which refuses it at its first byte and says why.
    """
    if body.startswith(GZIP_MAGIC):
        return
    rest, count = _STRING.subn(b"", body, count=MAX_STRINGS + 1)
    if count > MAX_STRINGS or len(rest) > MAX_BYTES_OUTSIDE:
        raise RequestRefused(
            Code.INVALID,
            f"the body has more structure than {MAX_BATCH} submissions have: send texts, and fewer at once",
        )

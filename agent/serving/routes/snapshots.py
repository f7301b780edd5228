"""Answers that open pages share: each is computed once, and given as bytes to whoever accepts one of some seconds ago.

A page asks for the same lists every few seconds, and writes in the header `Cache-Control: max-age=2` (RFC 9111, section
5.2.1.1) that an answer may be two seconds old; a client without that header is always given a new one. However many
pages are open, the record is then read, and JSON written, once in two seconds.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import NamedTuple

from anyio.to_thread import run_sync
from fastapi import Request, Response

MAX_SNAPSHOTS = 256
"""Answers that are remembered, the newest."""
_MAX_AGE = re.compile(r"max-age=(\d{1,4})\b")


class Snapshot(NamedTuple):
    """An answer as it is sent."""

    made: float
    """When its computation began, by the monotonic clock."""
    body: asyncio.Future[bytes]


class Snapshots:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._snapshots: dict[str, Snapshot] = {}

    async def answer(self, request: Request, client: str, compute: Callable[[], bytes]) -> Response:
        """Answers a request of a client. compute: gives the JSON of a new answer, called in a thread."""
        key = f"{client} {request.url.path}?{request.url.query}"
        body = await self._body(key, _accepted_age(request), compute)
        return Response(body, media_type="application/json")

    async def _body(self, key: str, accepted_age: float, compute: Callable[[], bytes]) -> bytes:
        """Waits for the computation that is under way where its result will be new enough."""
        snapshot = self._snapshots.get(key)
        if snapshot is None or time.monotonic() - snapshot.made > accepted_age:
            while len(self._snapshots) >= MAX_SNAPSHOTS:
                del self._snapshots[next(iter(self._snapshots))]
            self._snapshots.pop(key, None)
            snapshot = Snapshot(time.monotonic(), asyncio.ensure_future(run_sync(compute)))
            self._snapshots[key] = snapshot
            snapshot.body.add_done_callback(lambda body: self._forget_failure(key, body))
        # Whoever leaves does not end the computation for those who wait beside him.
        return await asyncio.shield(snapshot.body)

    def _forget_failure(self, key: str, body: asyncio.Future[bytes]) -> None:
        has_failed = body.cancelled() or body.exception() is not None
        snapshot = self._snapshots.get(key)
        if has_failed and snapshot is not None and snapshot.body is body:
            del self._snapshots[key]


def _accepted_age(request: Request) -> float:
    """Returns the seconds that an answer may be old; -1 where it must be new."""
    match = _MAX_AGE.search(request.headers.get("cache-control", ""))
    return float(match[1]) if match else -1.0

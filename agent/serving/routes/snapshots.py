"""Shared answers for open pages: computed once, then sent as bytes to all clients accepting an
answer of this age.

A page requests the same lists every few seconds with the header `Cache-Control: max-age=2` (RFC
9111, section 5.2.1.1), so an answer may be two seconds old. A client without this header always
gets a new answer. With any number of open pages the record is read, and JSON written, once in two
seconds.
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
"""Maximum number of stored answers, newest first."""
_MAX_AGE = re.compile(r"max-age=(\d{1,4})\b")


class Snapshot(NamedTuple):
    """Stored answer, or its computation."""

    began: float
    """When its computation began, by the monotonic clock."""
    body: asyncio.Future[bytes]


class Snapshots:
    """Stored answers of an event loop."""

    def __init__(self) -> None:
        self._snapshots: dict[str, Snapshot] = {}

    async def answer(self, request: Request, client: str, compute: Callable[[], bytes]) -> Response:
        """Answers a client's request. compute: returns the JSON of a new answer; called in a
        thread.
        """
        key = f"{client} {request.url.path}?{request.url.query}"
        body = await self._body(key, _accepted_age(request), compute)
        return Response(body, media_type="application/json")

    async def _body(self, key: str, accepted_age: float, compute: Callable[[], bytes]) -> bytes:
        """Returns the stored body if new enough, else computes a new body; concurrent callers share
        a computation.
        """
        snapshot = self._snapshots.get(key)
        if snapshot is None or time.monotonic() - snapshot.began > accepted_age:
            while len(self._snapshots) >= MAX_SNAPSHOTS:
                del self._snapshots[next(iter(self._snapshots))]
            self._snapshots.pop(key, None)
            snapshot = Snapshot(time.monotonic(), asyncio.ensure_future(run_sync(compute)))
            self._snapshots[key] = snapshot
            snapshot.body.add_done_callback(lambda body: self._forget_failure(key, body))
        # A disconnected client must not end the computation shared by others.
        return await asyncio.shield(snapshot.body)

    def _forget_failure(self, key: str, body: asyncio.Future[bytes]) -> None:
        has_failed = body.cancelled() or body.exception() is not None
        snapshot = self._snapshots.get(key)
        if has_failed and snapshot is not None and snapshot.body is body:
            del self._snapshots[key]


def _accepted_age(request: Request) -> float:
    """Returns the accepted age of an answer in seconds; -1 without the header."""
    match = _MAX_AGE.search(request.headers.get("cache-control", ""))
    return float(match[1]) if match else -1.0

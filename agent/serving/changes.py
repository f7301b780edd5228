"""Notifies waiting coroutines of changes of verdicts, within one event loop."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Changes:
    """`tell` may be called in any thread; everything else within the loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self.streams: Counter[str] = Counter()
        """Open streams of events by client."""
        self.closing = False
        """Whether whoever waits is to leave."""

    def attach(self) -> None:
        """Attaches to the running event loop."""
        self._loop = asyncio.get_running_loop()

    def tell(self, verdict_id: str) -> None:
        """Notifies the waiters of a change of this verdict."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, verdict_id)

    def close(self) -> None:
        """Everyone who waits leaves. May be called in a signal handler."""
        self.closing = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_all)

    @contextmanager
    def of(self, verdict_id: str) -> Iterator[asyncio.Event]:
        """Yields an event set at each change of this verdict; the waiter clears the event."""
        event = asyncio.Event()
        self._waiting[verdict_id].add(event)
        try:
            yield event
        finally:
            self._waiting[verdict_id].discard(event)
            if not self._waiting[verdict_id]:
                del self._waiting[verdict_id]

    @contextmanager
    def stream(self, client: str) -> Iterator[None]:
        """While a stream of events of this client is open."""
        self.streams[client] += 1
        try:
            yield
        finally:
            self.streams[client] -= 1

    def _wake(self, verdict_id: str) -> None:
        for event in self._waiting.get(verdict_id, ()):
            event.set()

    def _wake_all(self) -> None:
        for events in self._waiting.values():
            for event in events:
                event.set()


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Returns when the event is set, or after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass

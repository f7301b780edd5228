"""An event loop in a thread of its own, so that synchronous callers in any thread can wait on it and be interrupted."""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

T = TypeVar("T")


class EventLoop:
    """anyio's portal into the loop, which starts with the first `wait_for`."""

    def __init__(self) -> None:
        self._portal: BlockingPortal | None = None
        self._until_closed = ExitStack()
        self._lock = threading.Lock()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop's thread and waits. Raises what it raises; Ctrl-C here cancels it there."""
        future = self._running().start_task_soon(lambda: work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancels what still runs, ends the loop and waits for its thread."""
        with self._lock:
            portal, self._portal = self._portal, None
            if portal is not None:
                portal.call(portal.stop, True)
                self._until_closed.close()

    def _running(self) -> BlockingPortal:
        from anyio.from_thread import start_blocking_portal

        with self._lock:
            if self._portal is None:
                self._portal = self._until_closed.enter_context(start_blocking_portal(name="policy"))
            return self._portal

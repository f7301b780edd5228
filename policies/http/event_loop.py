"""An event loop in a thread of its own, so that synchronous callers in any thread can wait on it and be interrupted."""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from concurrent import futures
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from kernelwright.policies.deadlines import DeadlineReached

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

T = TypeVar("T")


class EventLoop:
    """Background event loop behind an anyio portal, started by the first `wait_for`.

    The thread is a daemon: it ends with the process, and a forked child does not wait for it.
    anyio's
    `start_blocking_portal` would wait for its thread in both cases.
    """

    def __init__(self) -> None:
        self._portal: BlockingPortal | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def wait_for(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Runs a coroutine on the loop's thread, waits, and returns its result.

        Ctrl-C in the calling thread cancels the coroutine. Raises the coroutine's exceptions, and
        DeadlineReached after
        `seconds`.
        """
        future = self._running().start_task_soon(lambda: work)
        try:
            ended, _ = futures.wait([future], seconds)
            if not ended:
                raise DeadlineReached
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancels running work, ends the loop and joins its thread."""
        with self._lock:
            portal, self._portal = self._portal, None
            if portal is not None and self._thread is not None:
                portal.call(portal.stop, True)
                self._thread.join()

    def _running(self) -> BlockingPortal:
        with self._lock:
            if self._portal is None:
                opened: Future[BlockingPortal] = Future()
                self._thread = threading.Thread(
                    target=_serve, args=(opened,), name="policy", daemon=True
                )
                self._thread.start()
                self._portal = opened.result()
            return self._portal


def _serve(opened: Future[BlockingPortal]) -> None:
    """Runs the loop until it is stopped. `opened` receives the portal."""
    import anyio
    from anyio.from_thread import BlockingPortal

    async def open_portal() -> None:
        async with BlockingPortal() as portal:
            opened.set_result(portal)
            await portal.sleep_until_stopped()

    anyio.run(open_portal)

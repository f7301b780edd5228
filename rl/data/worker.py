"""A process of ours that verifies: it has an evaluator of its own, and ends when the one that started it does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.pipeline import Evaluator

OWN_SECONDS, TOLD_SECONDS = 1.0, 5.0
"""For processes to end by themselves, and for those to end that were told to."""
CLOSING_SECONDS = 4.0
_here: dict[str, Any] = {}
"""Of this process: its evaluator."""


@contextmanager
def evaluating(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of such processes. They share nothing with this one: each has its own warm zygotes, about 1 GB. At the end, and after Ctrl-C, what is under way is given up."""
    import multiprocessing

    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _open)
    try:
        _start(pool)
        yield pool
    finally:
        own = list((pool._processes or {}).values())  # 3.14 has terminate_workers() for this
        pool.shutdown(wait=False, cancel_futures=True)
        _joined(own, OWN_SECONDS)
        for process in own:
            process.terminate()
        _joined(own, TOLD_SECONDS)
        for process in own:
            process.kill()


def _start(pool: ProcessPoolExecutor) -> None:
    """All processes at once, deaf to Ctrl-C from their first moment: it is for the one that started them to end them, and theirs would print a traceback each."""
    import os
    import signal
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # its own start would give this thread its ears back
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        pool.submit(os.getpid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)


def _joined(processes: Sequence[BaseProcess], seconds: float) -> None:
    end = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))


def evaluator() -> Evaluator:
    """Of the process that this is called in."""
    found: Evaluator = _here["evaluator"]
    return found


def end_with_parent() -> None:
    """A parent that is killed takes its workers along: without this they would wait for work for ever."""
    import multiprocessing
    import threading

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            _leave()

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def _end(*_: Any) -> None:
    """Leaves nothing behind where it can. Not in the main thread: told at this very moment, that one may hold a lock that closing wants, and has to go on to give it back."""
    import threading

    threading.Thread(target=_leave, daemon=True).start()


def _leave() -> None:
    """Zygotes that are not closed in time die with their parent."""
    import os
    import threading

    closing = threading.Thread(target=_close, daemon=True)
    closing.start()
    closing.join(CLOSING_SECONDS)
    os._exit(1)


def _close() -> None:
    while _here.get("opening"):  # the main thread goes on, and what it has begun has a folder already
        time.sleep(0.01)
    if "evaluator" in _here:
        _here["evaluator"].close()


def _open() -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # before imports: their threads hear again
    signal.signal(signal.SIGTERM, _end)
    end_with_parent()
    from multiprocessing.util import Finalize

    import torch

    from tools.pipeline import Evaluator

    torch.set_num_threads(1)
    _here["opening"] = True
    try:
        _here["evaluator"] = made = Evaluator(device="cpu", workers=1)
    finally:
        _here["opening"] = False
    Finalize(None, made.close, exitpriority=10)

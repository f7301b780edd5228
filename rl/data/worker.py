"""A process of ours that verifies: it has an evaluator of its own, and ends when the one that started it does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.pipeline import Evaluator

ENDING_SECONDS = 5.0
"""For a process to end that was told to."""
_here: dict[str, Any] = {}
"""Of this process: its evaluator."""


@contextmanager
def evaluating(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of such processes. They share nothing with this one: each has its own warm zygotes, about 1 GB. At the end, and after Ctrl-C, what is under way is given up."""
    import multiprocessing

    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _open)
    try:
        yield pool
    finally:
        own = list((pool._processes or {}).values())  # 3.14 has terminate_workers() for this
        pool.shutdown(wait=False, cancel_futures=True)
        for process in own:
            process.terminate()
        for process in own:
            process.join(ENDING_SECONDS)


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
            _end()

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def _end(*_: Any) -> None:
    """With the zygotes, which would wait for their pipes otherwise."""
    import os

    if "evaluator" in _here:
        _here["evaluator"].close()
    os._exit(1)


def _open() -> None:
    import signal
    from multiprocessing.util import Finalize

    import torch

    from tools.pipeline import Evaluator

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    end_with_parent()
    torch.set_num_threads(1)
    _here["evaluator"] = made = Evaluator(device="cpu", workers=1)
    Finalize(None, made.close, exitpriority=10)

"""A process of ours that verifies: it has an evaluator of its own, and ends when the one that started it does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernelwright.rl.workers.worker_pool import call_before_exit, process_pool

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator

WORKER_CLOSING_SECONDS = 4.0
_here: dict[str, Any] = {}
"""The state of this process: its evaluator."""


@contextmanager
def evaluating(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of such processes: each has its own warm zygotes, about 1 GB."""
    with process_pool(workers, _open) as pool:
        yield pool


def evaluator() -> Evaluator:
    """The evaluator of the process that this is called in."""
    found: Evaluator = _here["evaluator"]
    return found


def _end(*_: Any) -> None:
    """Leaves nothing behind where it can.

    Not in the main thread: told at this very moment, that one may hold a lock that closing wants, and has to go on to
    give it back.
    """
    import threading

    threading.Thread(target=_leave, daemon=True).start()


def _leave() -> None:
    import os

    _close_in_time()
    os._exit(1)


def _close_in_time() -> None:
    """Zygotes that are not closed in time die with their parent, and remove their folders; one that was to be begun has
    an empty folder already.
    """
    import threading

    from kernelwright.tools.sandbox.folders import remove_empty

    closing = threading.Thread(target=_close, daemon=True)
    closing.start()
    closing.join(WORKER_CLOSING_SECONDS)
    if closing.is_alive():
        remove_empty()


def _close() -> None:
    while _here.get(
        "opening"
    ):  # the main thread goes on, and what it has begun has a folder already
        time.sleep(0.01)
    if "evaluator" in _here:
        _here["evaluator"].close()


def _open() -> None:
    import signal

    signal.signal(signal.SIGTERM, _end)
    call_before_exit(_close_in_time)
    from multiprocessing.util import Finalize

    import torch

    from kernelwright.tools.evaluation.pipeline import Evaluator

    torch.set_num_threads(1)
    _here["opening"] = True
    try:
        _here["evaluator"] = made = Evaluator(device="cpu", workers=1)
    finally:
        _here["opening"] = False
    Finalize(None, made.close, exitpriority=10)

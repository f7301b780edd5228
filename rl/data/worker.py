"""A worker process with its own evaluator, which ends with its parent."""

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
"""Seconds of grace for a worker's evaluator to close."""
_worker_state: dict[str, Any] = {}
"""The state of this process: its evaluator."""


@contextmanager
def evaluating(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Opens a pool of worker processes, each with warm zygotes of about 1 GB."""
    with process_pool(workers, _open) as pool:
        yield pool


def evaluator() -> Evaluator:
    """Returns the evaluator of the current process."""
    opened: Evaluator = _worker_state["evaluator"]
    return opened


def _end(*_: Any) -> None:
    """Closes the evaluator in a thread, then exits.

    The main thread may hold a lock needed for closing, and must continue to release it.
    """
    import threading

    threading.Thread(target=_leave, daemon=True).start()


def _leave() -> None:
    import os

    _close_in_time()
    os._exit(1)


def _close_in_time() -> None:
    """Closes the evaluator within a time limit. Zygotes not closed in time die with their parent
    and remove their folders; a zygote being started has an empty folder already.
    """
    import threading

    from kernelwright.tools.sandbox.folders import remove_empty

    closing = threading.Thread(target=_close, daemon=True)
    closing.start()
    closing.join(WORKER_CLOSING_SECONDS)
    if closing.is_alive():
        remove_empty()


def _close() -> None:
    # The main thread continues meanwhile, and the processes it has begun have a folder already.
    while _worker_state.get("opening"):
        time.sleep(0.01)
    if "evaluator" in _worker_state:
        _worker_state["evaluator"].close()


def _open() -> None:
    import signal

    signal.signal(signal.SIGTERM, _end)
    call_before_exit(_close_in_time)
    from multiprocessing.util import Finalize

    import torch

    from kernelwright.tools.evaluation.pipeline import Evaluator

    torch.set_num_threads(1)
    # A signal during the opening waits for its end: see `_close`.
    _worker_state["opening"] = True
    try:
        _worker_state["evaluator"] = opened = Evaluator(device="cpu", workers=1)
    finally:
        _worker_state["opening"] = False
    Finalize(None, opened.close, exitpriority=10)

"""Processes of ours that work for one command: deaf to Ctrl-C, and gone when the command ends, is stopped or is
killed.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from kernelwright.policies.ignore_interrupts import ignoring_interrupts

OWN_SECONDS, TOLD_SECONDS = 1.0, 5.0
"""For processes to end by themselves, and for those to end that were told to."""


@contextmanager
def pool_of(workers: int, begin: Callable[..., None] | None = None, *given: Any) -> Iterator[ProcessPoolExecutor]:
    """They share nothing with this one.

    `begin(*given)`: called in each, once. At the end, and after Ctrl-C, what is under way is given up.
    """
    pool: ProcessPoolExecutor | None = None
    try:
        with ignoring_interrupts():  # this process too, or a semaphore that is just being made would be left behind
            pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _enter, (begin, given))
            while len(pool._processes or ()) < workers:  # each submission starts one
                pool.submit(os.getpid)
        yield pool
    finally:
        if pool is not None:
            _end(pool)


def _end(pool: ProcessPoolExecutor) -> None:
    own = list((pool._processes or {}).values())  # 3.14 has terminate_workers() for this
    pool.shutdown(wait=False, cancel_futures=True)
    _joined(own, OWN_SECONDS)
    for process in own:
        process.terminate()
    _joined(own, TOLD_SECONDS)
    for process in own:
        process.kill()


def _joined(processes: Sequence[BaseProcess], seconds: float) -> None:
    end = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))


# ---------------------------------------------------------------- in such a process
_last: list[Callable[[], None]] = []
"""What is to be done before it leaves."""


def before_leaving(do: Callable[[], None]) -> None:
    """Where the one that started this process is killed."""
    _last.append(do)


def _enter(begin: Callable[..., None] | None, given: tuple[Any, ...]) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # threads of what is imported hear again
    _end_with_parent()
    if begin is not None:
        begin(*given)


def _end_with_parent() -> None:
    """A parent that is killed takes its workers along: without this they would wait for work for ever."""
    import threading

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            for do in _last:
                do()
            os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()

"""Worker processes of a single command: they ignore Ctrl-C, and end when the command ends, is
stopped or is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from kernelwright.worker_process import end_with_parent

EXIT_SECONDS, TERMINATION_SECONDS = 1.0, 5.0
"""Seconds in which processes may end by themselves, and seconds after SIGTERM before they are killed."""


@contextmanager
def process_pool(
    workers: int, begin: Callable[..., None] | None = None, *arguments: Any
) -> Iterator[ProcessPoolExecutor]:
    """Opens a pool of processes without shared memory.

    begin: called once in each process with `arguments`. At the end, and after Ctrl-C, work under
    way is abandoned.
    """
    pool: ProcessPoolExecutor | None = None
    try:
        # In this process, too: an interrupt during the making of a semaphore would leak it.
        with ignoring_interrupts():
            pool = ProcessPoolExecutor(
                workers, multiprocessing.get_context("spawn"), _enter, (begin, arguments)
            )
            while len(pool._processes or ()) < workers:  # each submission starts one
                pool.submit(os.getpid)
        yield pool
    finally:
        if pool is not None:
            _end(pool)


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Makes processes started inside the block ignore Ctrl-C from their first moment, also during
    imports: a signal mask is inherited, even by a new program.
    """
    from multiprocessing import resource_tracker

    # Started inside the block, the tracker would unblock the signal in this thread.
    resource_tracker.ensure_running()
    earlier_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier_mask)


def _end(pool: ProcessPoolExecutor) -> None:
    processes = list((pool._processes or {}).values())  # 3.14 has terminate_workers() for this
    pool.shutdown(wait=False, cancel_futures=True)
    _joined(processes, EXIT_SECONDS)
    for process in processes:
        process.terminate()
    _joined(processes, TERMINATION_SECONDS)
    for process in processes:
        process.kill()


def _joined(processes: Sequence[BaseProcess], seconds: float) -> None:
    end = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))


# ---------------------------------------------------------------- in such a process
_last: list[Callable[[], None]] = []
"""Functions called before this process exits."""


def call_before_exit(do: Callable[[], None]) -> None:
    """Registers `do` to be called if the parent of this process is killed."""
    _last.append(do)


def _leave() -> None:
    for do in _last:
        do()


def _enter(begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    # In addition to the inherited mask, because threads of imported libraries unblock the signal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(_leave)
    if begin is not None:
        begin(*arguments)

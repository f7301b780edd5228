"""Where a verdict is at work and for how long it waited to be: in a lane of the caller's, and on a GPU alone or beside
other processes that time nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from kernelwright.tools.hardware.lease import Lease, gpu_lease
from kernelwright.tools.hardware.memory_requests import answer_memory_request, requested_memory
from kernelwright.tools.options import Lane
from kernelwright.tools.problem import Problem

if TYPE_CHECKING:
    from kernelwright.tools.hardware.gpus import Gpu

SHARED_MEMORY_DIVISOR = 64
"""Inputs and weights of up to this part of a GPU's memory are judged beside other processes."""
POLL_SECONDS = 0.02
"""Seconds between two looks at whether another process asks for memory."""


class _WaitedSeconds(threading.local):
    seconds = 0.0


class Turns:
    """The lanes and GPU turns of one evaluator. Thread-safe."""

    def __init__(
        self, lane: Callable[[Lane], AbstractContextManager[None]], gpu: Callable[[], Gpu | None]
    ) -> None:
        """lane: entered for the time that a verdict works there. gpu: the one that this evaluator judges on."""
        self._lane, self._gpu = lane, gpu
        self._gpu_lock = threading.Lock()
        self._memory_lock = threading.Lock()
        """Held by the verdict of this process that is at work on the GPU, not by one that waits for its turn."""
        self._waited = _WaitedSeconds()
        self._lease: Lease | None = None
        """Of the verdict of this process that is at work on the GPU."""
        self._giver: MemoryGiver | None = None

    @property
    def waited(self) -> float:
        """Seconds that this thread's verdict has waited."""
        return self._waited.seconds

    def begin(self) -> None:
        """This thread begins a verdict."""
        self._waited.seconds = 0.0

    @contextmanager
    def at(
        self, lane: Lane, seconds: float, say: Callable[[str], None], *, shared: bool = False
    ) -> Iterator[None]:
        """In the lane; where it is the GPU's, alone there, or beside other processes that time nothing.

        seconds: for how long another process may keep the GPU. Raises InfrastructureError after that.
        """
        begun = time.monotonic()
        turn = self.on_the_gpu(seconds, say, shared=shared) if lane is Lane.GPU else nullcontext()
        with turn, self._lane(lane):
            self._waited.seconds += time.monotonic() - begun
            yield

    @contextmanager
    def on_the_gpu(
        self, seconds: float, say: Callable[[str], None], *, shared: bool = False
    ) -> Iterator[None]:
        """Nobody else of this process is judged on the GPU meanwhile, and no other process measures there.

        Raises InfrastructureError after so many seconds.
        """
        gpu = self._gpu()
        lease = gpu_lease(gpu.uuid if gpu else "", seconds, say, shared=shared)
        with self._gpu_lock, lease as self._lease, self._memory_lock:
            try:
                yield
            finally:
                self._lease = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For the verdict that is at work on the GPU beside other processes: nobody else computes there while the block
        runs, and all keep what they have in its memory. Raises InfrastructureError as `at`.
        """
        assert self._lease is not None
        begun = time.monotonic()
        with self._lease.alone():
            self._waited.seconds += time.monotonic() - begun
            yield
            ended = time.monotonic()
        self._waited.seconds += time.monotonic() - ended

    def take_whole_for(self, problem: Problem) -> None:
        """For the verdict that is at work on the GPU beside other processes, and has nothing under way there: from here
        to its end nobody else is judged there, unless the problem fits beside others. What is kept here may be asked
        for meanwhile. Raises InfrastructureError as `at`.
        """
        assert self._lease is not None
        gpu = self._gpu()
        if gpu is not None and fits_beside_others(problem, gpu):
            return
        begun = time.monotonic()
        self._memory_lock.release()
        try:
            self._lease.take_whole()
        finally:
            self._memory_lock.acquire()
        self._waited.seconds += time.monotonic() - begun

    def give_way(self) -> None:
        """For a verdict that is at work on the GPU, and has nothing under way there: whoever waits to be alone goes
        first. Raises InfrastructureError as `at`.
        """
        if self._lease is not None:
            begun = time.monotonic()
            self._lease.give_way()
            self._waited.seconds += time.monotonic() - begun

    def give_memory_by(self, give: Callable[[int], None], sharers: int) -> None:
        """From now on, where no verdict of this process is at work, `give` is told how many bytes another process asks
        for that is alone on the GPU. sharers: judges on it; one has nobody to give to.
        """
        gpu = self._gpu()
        if gpu is not None and sharers > 1:
            self._giver = MemoryGiver(gpu.uuid, self._memory_lock, give)

    def close(self) -> None:
        """Ends the giving of memory."""
        if self._giver is not None:
            self._giver.close()


class MemoryGiver:
    """A thread that looks many times a second whether another process asks for memory."""

    def __init__(self, gpu: str, lock: threading.Lock, give: Callable[[int], None]) -> None:
        """gpu: its UUID. lock: without which nobody of this process uses the GPU. give: is told the bytes that are to
        be free.
        """
        self._gpu, self._lock, self._give = gpu, lock, give
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory-requests", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        answered = 0
        while not self._closed.wait(POLL_SECONDS):
            wanted = requested_memory(self._gpu)
            if wanted and wanted.number != answered and self._lock.acquire(blocking=False):
                try:
                    self._give(wanted.needed)
                finally:
                    self._lock.release()
                answer_memory_request(self._gpu)
                answered = wanted.number

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._thread.join()


def fits_beside_others(problem: Problem, gpu: Gpu) -> bool:
    """Whether the problem's inputs and weights are little enough for a verdict beside those of other processes: what a
    verdict needs is many times as much.
    """
    from kernelwright.tools.references.input_spec import input_spec

    memory = gpu.memory_bytes
    return (
        memory is not None
        and input_spec(problem, as_it_is=True).bytes * SHARED_MEMORY_DIVISOR <= memory
    )

"""Schedules verdicts on lanes and on a GPU, exclusively or beside other processes, and measures
their waiting times."""

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
"""Verdicts whose inputs and weights take at most the GPU's memory divided by this run beside other
processes."""
POLL_SECONDS = 0.02
"""Interval, in seconds, of polling for memory requests of other processes."""


class _WaitedSeconds(threading.local):
    seconds = 0.0


class Turns:
    """The lanes and GPU turns of an evaluator. Thread-safe."""

    def __init__(
        self, lane: Callable[[Lane], AbstractContextManager[None]], gpu: Callable[[], Gpu | None]
    ) -> None:
        """lane: context manager held while a verdict runs on that lane. gpu: returns this
        evaluator's GPU."""
        self._lane = lane
        self._gpu = gpu
        self._gpu_lock = threading.Lock()
        self._memory_lock = threading.Lock()
        """Held by this process's verdict that runs on the GPU, not by waiting ones."""
        self._waited = _WaitedSeconds()
        self._lease: Lease | None = None
        """Lease of this process's verdict that runs on the GPU."""
        self._giver: MemoryGiver | None = None

    @property
    def waited(self) -> float:
        """Seconds waited by this thread's verdict."""
        return self._waited.seconds

    def begin(self) -> None:
        """Starts a verdict of this thread."""
        self._waited.seconds = 0.0

    @contextmanager
    def at(
        self, lane: Lane, seconds: float, say: Callable[[str], None], *, shared: bool = False
    ) -> Iterator[None]:
        """Context manager held while a verdict runs on the lane; on the GPU lane alone, or beside
        processes that time nothing.

        seconds: maximum wait for another process on the GPU. Raises InfrastructureError after that.
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
        """Context manager that excludes other verdicts of this process, and timing by other
        processes, from the GPU.

        Raises InfrastructureError after `seconds`.
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
        """Context manager that excludes all other computation from the GPU, for a verdict running
        beside other processes.

        Memory of all processes stays in use. Raises InfrastructureError as `at`.
        """
        assert self._lease is not None
        begun = time.monotonic()
        with self._lease.alone():
            self._waited.seconds += time.monotonic() - begun
            yield
            ended = time.monotonic()
        self._waited.seconds += time.monotonic() - ended

    def take_whole_for(self, problem: Problem) -> None:
        """Excludes other verdicts from the GPU until this verdict ends, unless the problem fits
        beside others.

        For a verdict that runs beside other processes, with the GPU idle. Caches here may be
        requested meanwhile. Raises InfrastructureError as `at`.
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
        """Yields the GPU to processes that wait for exclusive use, with the GPU idle. Raises
        InfrastructureError as `at`."""
        if self._lease is not None:
            begun = time.monotonic()
            self._lease.give_way()
            self._waited.seconds += time.monotonic() - begun

    def give_memory_by(self, give: Callable[[int], None], sharers: int) -> None:
        """Calls `give` with the number of bytes requested by a process alone on the GPU, while no
        verdict runs here.

        sharers: number of judges on the GPU; a single one has nobody to give to.
        """
        gpu = self._gpu()
        if gpu is not None and sharers > 1:
            self._giver = MemoryGiver(gpu.uuid, self._memory_lock, give)

    def close(self) -> None:
        """Stops answering memory requests."""
        if self._giver is not None:
            self._giver.close()


class MemoryGiver:
    """A thread that polls for memory requests of other processes."""

    def __init__(self, gpu: str, lock: threading.Lock, give: Callable[[int], None]) -> None:
        """gpu: its UUID. lock: required by any user of the GPU in this process. give: frees that
        many bytes."""
        self._gpu = gpu
        self._lock = lock
        self._give = give
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory-requests", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        answered = 0
        while not self._closed.wait(POLL_SECONDS):
            request = requested_memory(self._gpu)
            if request and request.number != answered and self._lock.acquire(blocking=False):
                try:
                    self._give(request.needed)
                finally:
                    self._lock.release()
                answer_memory_request(self._gpu)
                answered = request.number

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._thread.join()


def fits_beside_others(problem: Problem, gpu: Gpu) -> bool:
    """Returns True if the problem's inputs and weights are small enough to be judged beside other
    processes.

    A verdict needs many times their size.
    """
    from kernelwright.tools.references.input_spec import input_spec

    memory = gpu.memory_bytes
    return (
        memory is not None
        and input_spec(problem, as_it_is=True).bytes * SHARED_MEMORY_DIVISOR <= memory
    )

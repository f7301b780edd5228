"""Where a verdict is at work and for how long it waited to be: in a lane of the caller's, and on a GPU alone or beside
other processes that time nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from kernelwright.tools.hardware.lease import gpu_lease
from kernelwright.tools.judging.options import Lane
from kernelwright.tools.problem import Problem

if TYPE_CHECKING:
    from kernelwright.tools.hardware.gpus import Gpu

SHARED_PARTS = 64
"""Inputs and weights of up to this part of a GPU's memory are judged beside other processes."""


class _WaitedSeconds(threading.local):
    seconds = 0.0


class Turns:
    """The lanes and GPU turns of one evaluator. Thread-safe."""

    def __init__(self, lane: Callable[[Lane], AbstractContextManager[None]], gpu: Callable[[], Gpu | None]) -> None:
        """lane: entered for the time that a verdict works there. gpu: the one that this evaluator judges on."""
        self._lane, self._gpu = lane, gpu
        self._gpu_lock = threading.Lock()
        self._waited = _WaitedSeconds()

    @property
    def waited(self) -> float:
        """Seconds that this thread's verdict has waited."""
        return self._waited.seconds

    def begin(self) -> None:
        """This thread begins a verdict."""
        self._waited.seconds = 0.0

    def leaves_room(self, problem: Problem) -> bool:
        """Whether other processes may judge on the GPU beside this problem.

        What a verdict needs is many times its inputs and weights.
        """
        from kernelwright.tools.references.input_spec import input_spec

        gpu = self._gpu()
        memory = gpu.memory_bytes if gpu else None
        return memory is not None and input_spec(problem, as_it_is=True).bytes * SHARED_PARTS <= memory

    @contextmanager
    def at(self, lane: Lane, seconds: float, say: Callable[[str], None], *, shared: bool = False) -> Iterator[None]:
        """In the lane; where it is the GPU's, alone there, or beside other processes that time nothing.

        seconds: for how long another process may keep the GPU. Raises InfrastructureError after that.
        """
        begun = time.monotonic()
        turn = self.on_the_gpu(seconds, say, shared=shared) if lane is Lane.GPU else nullcontext()
        with turn, self._lane(lane):
            self._waited.seconds += time.monotonic() - begun
            yield

    @contextmanager
    def on_the_gpu(self, seconds: float, say: Callable[[str], None], *, shared: bool = False) -> Iterator[None]:
        """Nobody else of this process is judged on the GPU meanwhile, and no other process measures there.

        Raises InfrastructureError after so many seconds.
        """
        gpu = self._gpu()
        with self._gpu_lock, gpu_lease(gpu.uuid if gpu else "", seconds, say, shared=shared):
            yield

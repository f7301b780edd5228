"""Manages a judge's cached memory on a GPU: frees it for the judge's next problem, the candidate's
process, or other judges."""

from __future__ import annotations

import gc
from collections.abc import Callable

from kernelwright.tools.expected.kept_problems import (
    KEPT_MEMORY_DIVISOR,
    LARGE_DRAW_DIVISOR,
    GpuMemory,
    KeptProblems,
)
from kernelwright.tools.hardware.gpus import Gpu
from kernelwright.tools.hardware.memory_requests import wait_for_memory
from kernelwright.tools.judging.profiling import Profiler
from kernelwright.tools.judging.turns import fits_beside_others
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_spec import input_spec
from kernelwright.tools.references.shared_tensors import Buffers

COPIES_OF_A_CALL = 6
"""Memory reserved for a problem on a GPU, in multiples of a call's inputs, weights and outputs.

Covers the judge's own copies, those given to the candidate, and intermediate results of both sides.
"""


class RoomOnGpu:
    """A judge's cached memory on its GPU."""

    def __init__(
        self,
        memory: GpuMemory,
        problems: KeptProblems,
        buffers: Buffers,
        profiler: Profiler | None,
        unmap: Callable[[], None],
        gpu: Gpu | None,
        sharers: int,
    ) -> None:
        """unmap: unmaps the judge's memory in the replaying process. sharers: number of judges on
        this GPU."""
        self.memory = memory
        self.problems = problems
        self._buffers = buffers
        self._profiler = profiler
        self._unmap = unmap
        self._gpu = gpu
        self._sharers = sharers
        self._parts = KEPT_MEMORY_DIVISOR if sharers == 1 else 2 * KEPT_MEMORY_DIVISOR
        """Memory is divided into more parts if other judges need to cache problems that fill half
        of it."""
        self._freed_for = self._requested_for = ""
        """Hash of the problem for which memory was freed last, here and in other judges.

        Memory in use since then belongs to that problem, and sufficed.
        """

    def trim(self) -> None:
        """Frees waiting buffers, if they are large and free memory is scarce.

        The replaying process unmaps them first.
        """
        whole = self.memory.total() // self._sharers
        if self._buffers.waiting > whole // self._parts and not self.memory.is_roomy():
            self._unmap()
            self._buffers.trim(whole // self._parts // 2)
        if self._sharers > 1:
            self.give_back_unused()

    def give_back_unused(self) -> None:
        """Returns torch's unused memory to the device, for the replaying process, if it is large
        and free memory is scarce."""
        memory = self.memory
        if memory.unused() > memory.total() // LARGE_DRAW_DIVISOR and not memory.is_roomy():
            memory.give_back_unused()

    def make_for(self, problem: Problem, *, again: bool = False) -> None:
        """Frees caches of other problems, the least recently used first, until a large problem may
        fit.

        again: also if memory was freed for this problem before, and did not suffice.
        """
        if problem.hash == self._freed_for and not again:
            return
        self._freed_for = problem.hash
        needed = _needed(problem)
        if needed <= self.memory.total() // LARGE_DRAW_DIVISOR or needed <= self.memory.free():
            return
        self._unmap()
        self._buffers.trim()
        while needed > self.memory.free() and (
            self._drop_timed(problem) or self.problems.drop_oldest(problem.name)
        ):
            pass
        self.memory.give_back_unused()

    def ask_others_for(self, problem: Problem, *, again: bool = False) -> None:
        """Requests memory from other judges of this GPU if freeing here did not suffice.

        Not for a problem small enough to run beside others. again: as in `make_for`.
        """
        if problem.hash == self._requested_for and not again:
            return
        self._requested_for = problem.hash
        gpu = self._gpu
        needed = _needed(problem)
        if needed <= self.memory.total() // LARGE_DRAW_DIVISOR or needed <= self.memory.free():
            return
        if self._sharers > 1 and gpu is not None and not fits_beside_others(problem, gpu):
            wait_for_memory(gpu.uuid, needed, self._sharers - 1)

    def give(self, needed: int) -> None:
        """Frees caches, including the most recent, until `needed` bytes of the GPU are free."""
        if needed > self.memory.free_for_all():
            self._freed_for = self._requested_for = ""
            self._unmap()
            self._buffers.trim()
            while needed > self.memory.free() and (
                self._drop_timed() or self.problems.drop_oldest(last_too=True)
            ):
                pass
            gc.collect()  # what was dropped may lie in circles
            self.memory.give_back_unused()

    def _drop_timed(self, besides: Problem | None = None) -> bool:
        return self._profiler is not None and self._profiler.drop_oldest(besides)

    def keeps_much(self) -> bool:
        """Returns True if large caches here may be the cause of a candidate's lack of memory."""
        cached_bytes = self.memory.reserved() + self._buffers.waiting
        return cached_bytes > self.memory.total() // LARGE_DRAW_DIVISOR


def _needed(problem: Problem) -> int:
    spec = input_spec(problem, as_it_is=True)
    return COPIES_OF_A_CALL * (spec.bytes + spec.output_bytes)

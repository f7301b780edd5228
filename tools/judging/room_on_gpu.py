"""The memory of a GPU that a judge keeps for speed alone: when it is given back, to its own next problem, to the
candidate's process, or to the other judges of that GPU.
"""

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
"""Room that is made beforehand for a problem on a GPU, in inputs, weights and outputs of one call: the judge's own and
those that the candidate is given, with what the reference and the candidate compute on the way.
"""


class RoomOnGpu:
    """What one judge keeps on its GPU, and lets go of."""

    def __init__(
        self, memory: GpuMemory, kept: KeptProblems, buffers: Buffers, profiler: Profiler | None,
        unmap: Callable[[], None], gpu: Gpu | None, sharers: int,
    ) -> None:  # fmt: skip
        """unmap: has the replayer's process unmap what it has of the judge's memory. sharers: judges on this GPU."""
        self.memory, self.kept, self._buffers, self._profiler = memory, kept, buffers, profiler
        self._unmap, self._gpu, self._sharers = unmap, gpu, sharers
        self._parts = KEPT_MEMORY_DIVISOR if sharers == 1 else 2 * KEPT_MEMORY_DIVISOR
        """Others need room too, for problems of which one alone fills half of the memory."""
        self._made_for = self._asked_for = ""
        """The hash of the problem that room was made for last, here and by the other judges: what is held is its own
        since, and it fitted.
        """

    def trim(self) -> None:
        """What waits to be used again is given back where it is much, and not much is free.

        The replayer's process has it mapped, and unmaps it first.
        """
        whole = self.memory.total() // self._sharers
        if self._buffers.waiting > whole // self._parts and not self.memory.is_roomy():
            self._unmap()
            self._buffers.trim(whole // self._parts // 2)
        if self._sharers > 1:
            self.give_back_unused()

    def give_back_unused(self) -> None:
        """The replayer shares the GPU with what torch keeps here for later: where that is much, and not much is free,
        it is given back first.
        """
        memory = self.memory
        if memory.unused() > memory.total() // LARGE_DRAW_DIVISOR and not memory.is_roomy():
            memory.give_back_unused()

    def make_for(self, problem: Problem, *, anew: bool = False) -> None:
        """What is kept of other problems is let go of, that which was used longest ago first, until one that fills much
        of the memory may find enough.

        anew: also where it was made for this problem before; it has found no memory since.
        """
        if problem.hash == self._made_for and not anew:
            return
        self._made_for = problem.hash
        needed = _needed(problem)
        if needed <= self.memory.total() // LARGE_DRAW_DIVISOR or needed <= self.memory.free():
            return
        self._unmap()
        self._buffers.trim()
        while needed > self.memory.free() and (
            self._drop_timed(problem) or self.kept.drop_oldest(problem.name)
        ):
            pass
        self.memory.give_back_unused()

    def ask_others_for(self, problem: Problem, *, anew: bool = False) -> None:
        """Where what was made here is not enough, the other judges of this GPU are asked for memory, unless they may be
        at work beside this problem. anew: as for `make_for`.
        """
        if problem.hash == self._asked_for and not anew:
            return
        self._asked_for, gpu = problem.hash, self._gpu
        needed = _needed(problem)
        if needed <= self.memory.total() // LARGE_DRAW_DIVISOR or needed <= self.memory.free():
            return
        if self._sharers > 1 and gpu is not None and not fits_beside_others(problem, gpu):
            wait_for_memory(gpu.uuid, needed, self._sharers - 1)

    def give(self, needed: int) -> None:
        """Lets go of what is kept until so many bytes of the GPU are free, of what was used last, too."""
        if needed > self.memory.free_for_all():
            self._made_for = self._asked_for = ""
            self._unmap()
            self._buffers.trim()
            while needed > self.memory.free() and (
                self._drop_timed() or self.kept.drop_oldest(last_too=True)
            ):
                pass
            gc.collect()  # what was dropped may lie in circles
            self.memory.give_back_unused()

    def _drop_timed(self, besides: Problem | None = None) -> bool:
        return self._profiler is not None and self._profiler.drop_oldest(besides)

    def keeps_much(self) -> bool:
        """Whether a candidate found no memory where much is kept here."""
        kept = self.memory.reserved() + self._buffers.waiting
        return kept > self.memory.total() // LARGE_DRAW_DIVISOR


def _needed(problem: Problem) -> int:
    spec = input_spec(problem, as_it_is=True)
    return COPIES_OF_A_CALL * (spec.bytes + spec.output_bytes)

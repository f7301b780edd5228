"""Clock of record of a GPU, on the judge's side.

Blocks of a candidate's calls, timed in the candidate's process, alternate with blocks of the
reference's calls, timed here; both by the same code (tools/gpu/stopwatch.py). The
judge's own clock bounds every block of the candidate from outside. A slow candidate is timed a
few times only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kernelwright.tools.gpu.stopwatch import flush_l2_cache
from kernelwright.tools.hardware.gpus import read_driver, read_sensors
from kernelwright.tools.hardware.neighbours import neighbours_of
from kernelwright.tools.report import InfrastructureError, Neighbour
from kernelwright.tools.timing.clock_protocols import ReplayChannel
from kernelwright.tools.timing.measurement import Measurement, RankedConfigurations
from kernelwright.tools.timing.measuring import ANSWER_SECONDS, InputSet, Measuring, well_formed
from kernelwright.tools.timing.reference_clock import ReferenceClock

SLOWED_FACTOR = 1.3
"""Ratio of the time of a write over the cache to its first time beyond which another program is
taken to be at work on this GPU.
"""
SLOWED_TRIES, SLOWED_PAUSE_SECONDS = 6, 0.5
"""Number of repetitions, and the pause between them, before a slow write counts: memory being
freed or written may keep the GPU busy for a moment.
"""
STEP_SECONDS = 20.0
"""Seconds for timing the alternatives of all choices."""


class Clock:
    """Clock of a GPU, with the time of a write over its L2 cache."""

    def __init__(self, device: str) -> None:
        import torch

        self.device = device
        with torch.cuda.device(device):
            self.flush_ms = _time_flush()
        self.name = torch.cuda.get_device_name(device)
        self.uuid = _uuid_of(device)

    def sets_for(self, nbytes: int) -> int:
        """Returns the number of input sets which fit into memory, at most 2.

        nbytes: inputs and outputs of a call, including float64 versions. Both processes hold
        outputs of every set, and the candidate's process a copy of the inputs too.
        """
        import torch

        free, _ = torch.cuda.mem_get_info(self.device)
        return 2 if 8 * nbytes <= free else 1

    def choose(
        self, process: ReplayChannel, inputs: InputSet, seconds: float = STEP_SECONDS
    ) -> tuple[RankedConfigurations, ...]:
        """Times every configuration of the autotuned launches of the opened trace.

        Raises Failed if a configuration ends the process.
        """
        message = {"do": "clock_choose", "seconds": seconds, "sets": [inputs.described]}
        reply = process.ask(message, seconds=seconds + ANSWER_SECONDS, shared=inputs.shared)
        with well_formed():
            times = {
                int(n): {int(k): float(ms) for k, ms in alternative_times}
                for n, alternative_times in reply["ms"]
            }
            return tuple(
                RankedConfigurations(number=int(n), ranked=tuple(map(int, order)),
                milliseconds=tuple(times[int(n)][k] for k in order))
                for n, order in reply["ranked"]
            )  # fmt: skip

    def measure(
        self,
        process: ReplayChannel,
        reference: ReferenceClock,
        sets: Sequence[InputSet],
        *,
        choices: Mapping[int, int] | None = None,
        output_memory: Sequence[Any] = (),
        compare: Callable[[int], None] | None = None,
        sparing: bool = False,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Measurement:
        """Times the opened trace, which passed every check, against its reference.

        choices: the alternative of each choice. places: shared memory for the outputs;
        `compare(index)` is called when they hold the outputs of a timed call on that set, and
        raises Failed for wrong outputs. sparing: whether captured graphs are freed before the
        comparison. alone: context during which nobody else computes on the GPU. Raises Failed,
        and InfrastructureError if another program uses this GPU.
        """
        import torch

        begun = time.monotonic()
        with torch.cuda.device(self.device):
            return Measuring(self, process, reference, sets, choices or {}, sparing, alone).run(
                output_memory, compare, begun
            )

    def neighbours(self) -> tuple[Neighbour, ...]:
        """Other GPUs of this machine that are at work now."""
        return neighbours_of(self.uuid, read_sensors()) if self.uuid else ()

    def refuse_a_shared_gpu(self) -> None:
        """Raises InfrastructureError if a write over the cache has become slower: another
        program's work distorts every measurement.
        """
        for _ in range(SLOWED_TRIES):
            now = _time_flush()
            if now <= SLOWED_FACTOR * self.flush_ms:
                return
            time.sleep(SLOWED_PAUSE_SECONDS)
        raise InfrastructureError(
            f"{self.device} is shared with another program (the judge's own fill takes {now:.3g} ms, "
            f"{self.flush_ms:.3g} before): stop it, wait for it, or judge on another GPU"
        )


def _time_flush() -> float:
    """Returns the milliseconds of a write over the cache."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        flush_l2_cache()
    start.record()
    for _ in range(10):
        flush_l2_cache()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 10


def _uuid_of(device: str) -> str:
    index = int(device.partition(":")[2] or 0)
    return next((g.uuid for g in read_driver().gpus if g.index == index), "")

"""Runs a measurement: blocks of a candidate's calls, timed in its process, alternate with blocks
of the reference's calls, timed here. Only these two touch the GPU.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.tools.gpu.stopwatch import LONG_CALL_MS
from kernelwright.tools.hardware.gpus import read_clocks
from kernelwright.tools.hardware.neighbours import busiest_readings
from kernelwright.tools.report import (
    Cheat,
    Clocks,
    Failed,
    Failure,
    Fault,
    Neighbour,
    Speedup,
    TimingMethod,
    clean_text,
)
from kernelwright.tools.timing.clock_protocols import ReplayChannel, TimedGpu, TimedReference
from kernelwright.tools.timing.measurement import (
    Measurement,
    StepTime,
    is_settled,
    summarise_samples,
)

if TYPE_CHECKING:
    import torch

CANDIDATE_MS, REFERENCE_MS = 60.0, 12.0
"""GPU time in milliseconds of the candidate's blocks, and of the reference's blocks beside them."""
MIN_CALLS = 6
MAX_CALLS = 48
BLOCKS = 3
SLOW_FACTOR, CALLS_WHEN_SLOW = 3.0, 3
"""Ratio to the reference above which a candidate counts as slow, and the number of its timed
calls.
"""
TRIAL_BLOCK = 16
"""Calls per block of a trial."""
CLOCK_DRIFT = 0.015
"""The relative drift beyond which the reference is measured anew: the GPU's clocks have changed
since its time of record.
"""
MIN_SHARE_OF_WALL_TIME = 0.7
"""Minimum share of the judge's wall time which a block's device events must claim."""
MAX_DOUBTED_BLOCKS = 8
"""Blocks, none of which can be believed, before that is called a cheat."""
BLOCK_SLACK, CALL_SLACK = 1.0, 0.1
"""Milliseconds of the judge's clock, a block and a call, that messages and host code take."""
ANSWER_SECONDS = 60.0
"""Time limit in seconds for an answer of the candidate's process."""


@dataclass(frozen=True)
class InputSet:
    """Arguments of a call of forward, in memory shared by the judge and the candidate's process."""

    values: Sequence[Any]
    """The judge's own tensors over the shared memory."""
    described: Any
    """The values as tools.wire.describe writes them, tensors by the spec of their shared memory."""
    shared: Sequence[Any] = ()
    """The shared memory of these values."""


@dataclass
class _Blocks:
    """The candidate's blocks so far."""

    times: list[list[float]] = field(default_factory=list)
    believed: list[bool] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    """Milliseconds a call, by the judge's clock."""

    @property
    def samples(self) -> list[float]:
        """Milliseconds of every call in a block that was believed."""
        return [
            ms
            for times, believed in zip(self.times, self.believed, strict=True)
            if believed
            for ms in times
        ]


class _Timed(NamedTuple):
    """Results of the phase in which nobody else computed on the GPU, beside the blocks' samples."""

    disturbed: bool
    """Whether the calls left something behind."""
    steps: tuple[StepTime, ...]
    drift: float
    """Of the reference's time beside this candidate from its time of record, relative."""
    clocks: Clocks | None
    neighbours: tuple[Neighbour, ...]
    """The other GPUs at work."""


class Measuring:
    """Measurement of a candidate against its reference."""

    def __init__(
        self,
        clock: TimedGpu,
        process: ReplayChannel,
        reference: TimedReference,
        sets: Sequence[InputSet],
        choices: Mapping[int, int],
        sparing: bool = False,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Prepares a measurement; `run` performs it.

        sparing: whether captured graphs are freed on both sides before outputs are compared.
        alone: context during which nobody else computes on the GPU, held while calls are timed.
        """
        self._clock = clock
        self._process = process
        self._reference = reference
        self._sets = sets
        self._choices = choices
        self._sparing = sparing
        self._alone = alone
        self._blocks, self._eager = _Blocks(), list[float]()
        self._notes: list[str] = []
        self._turn = 0

    def run(
        self, output_memory: Sequence[Any], compare: Callable[[int], None] | None, begun: float
    ) -> Measurement:
        """Times the candidate in turns with the reference. places, compare: as `Clock.measure`
        takes them; begun: by `time.monotonic`. Raises Failed for a wrong output and for times
        that cannot be believed.
        """
        host_ms = self._open()
        timed = self._timed(output_memory, compare)
        if timed.disturbed:
            self._note(
                "a call changes memory that outlives it: all of it was restored before each timed call"
            )
            self._blocks, self._eager = _Blocks(), []
            host_ms = self._open(everything=True)
            timed = self._timed(output_memory, compare)
        self._process.ask({"do": "clock_close"}, seconds=ANSWER_SECONDS)
        candidate = summarise_samples(self._blocks.samples, self._reference.method)
        eager = self._reference.record
        speedup = Speedup.between(eager, candidate)
        self._reference.release_if_large()
        return Measurement(
            device=self._clock.name,
            candidate=candidate,
            eager=eager,
            speedup=speedup.median,
            speedup_low=speedup.low,
            host_ms=host_ms,
            eager_host_ms=self._reference.host_us / 1e3,
            wall_ms=statistics.median(self._blocks.wall),
            eager_drift=timed.drift,
            steps=timed.steps,
            clocks=timed.clocks,
            neighbours=timed.neighbours,
            notes=tuple(self._notes),
            seconds=time.monotonic() - begun,
        )

    def _timed(self, output_memory: Sequence[Any], compare: Callable[[int], None] | None) -> _Timed:
        """Times both sides while nobody else computes on the GPU; then compares an output of the
        timed calls. Raises Failed for a wrong output.
        """
        with self._alone():
            self._alternate()
            last = (self._turn - 1) % len(self._sets)
            disturbed = self._outputs_taken(output_memory, last)
            meanwhile = self._clock.neighbours()
            steps = self._steps()
            drift = self._check_drift()
            timed = _Timed(
                disturbed=disturbed,
                steps=steps,
                drift=drift,
                clocks=read_clocks(self._clock.uuid) if self._clock.uuid else None,
                neighbours=busiest_readings(meanwhile, self._clock.neighbours()),
            )
        if compare is not None:
            if self._sparing:
                self._process.ask({"do": "clock_close"}, seconds=ANSWER_SECONDS)
                self._reference.release()
            _compare_timed(compare, last)
        return timed

    def time_candidate(self, calls: int) -> list[float]:
        """Returns the milliseconds of each call, by the reference's method but without
        alternating, for comparing configurations of a kernel. Raises Failed.
        """
        self._open()
        self._block(1, counted=False)
        remaining = calls
        while remaining > 0:
            self._block(min(remaining, TRIAL_BLOCK))
            remaining -= TRIAL_BLOCK
        self._until_believed(min(calls, TRIAL_BLOCK))
        self._process.ask({"do": "clock_close"}, seconds=ANSWER_SECONDS)
        return self._blocks.samples

    def _open(self, everything: bool = False) -> float:
        """Opens both sides in the same mode. Returns the milliseconds that the candidate's host
        code would take without a graph.
        """
        self._reference.open()
        return self._open_candidate(everything)

    def _open_candidate(self, everything: bool = False) -> float:
        message = {
            "do": "clock_open", "sets": [s.described for s in self._sets], "choices": list(self._choices.items()),
            "graphs": self._reference.method is TimingMethod.GRAPH, "everything": everything,
        }  # fmt: skip
        reply = self._process.ask(
            message,
            seconds=ANSWER_SECONDS,
            shared=[memory for s in self._sets for memory in s.shared],
        )
        with well_formed():
            captured = bool(reply["captured"])
            why = str(reply["why"])
            host_ms = float(reply["host_ms"])
            copied = bool(reply["copied"])
        if self._reference.method is not TimingMethod.GRAPH:
            self._note(
                f"timed without CUDA graphs: the reference cannot be captured ({self._reference.why})"
            )
        elif not captured:
            self._note(
                f"timed without CUDA graphs: the candidate cannot be captured ({clean_text(why, 200)})"
            )
            self._reference.open(TimingMethod.QUEUED)
        if not copied:
            self._note(
                "weights and inputs were not restored before each timed call: the GPU has no room for copies"
            )
        return host_ms

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    # -------------------------------------------------------------- blocks
    def _alternate(self) -> None:
        """Alternates blocks of the candidate and of the reference, after a candidate's block
        which estimates its time.
        """
        eager = self._reference.record.median
        estimate = statistics.median(self._block(1, counted=False))
        if estimate < LONG_CALL_MS:
            estimate = statistics.median(self._block(2, counted=False))
        if estimate > SLOW_FACTOR * eager and estimate > 1.0:
            calls = CALLS_WHEN_SLOW
            blocks = 1
        else:
            each = estimate + self._clock.flush_ms
            calls = max(MIN_CALLS, min(MAX_CALLS, int(CANDIDATE_MS / each)))
            blocks = BLOCKS
        beside = max(
            1, min(MAX_CALLS // 4, int(REFERENCE_MS / blocks / (eager + self._clock.flush_ms)))
        )
        self._eager += self._reference.block(beside)
        for _ in range(blocks):
            self._block(max(1, calls // blocks))
            self._eager += self._reference.block(beside)
            if is_settled(summarise_samples(self._blocks.samples or [estimate]), 0.004):
                break
        self._until_believed(max(1, calls // blocks))

    def _until_believed(self, calls: int) -> None:
        """Raises Failed if the device events of every block claim far less than the judge's
        clock: a busy machine slows some blocks, a cheat all of them.
        """
        while not self._blocks.samples:
            if len(self._blocks.times) < MAX_DOUBTED_BLOCKS:
                self._block(calls)
                continue
            self._clock.refuse_a_shared_gpu()
            claimed = statistics.median(ms for block in self._blocks.times for ms in block)
            least_wall = min(self._blocks.wall)
            message = (
                f"the events claim {claimed:.4g} ms a call, the judge's clock saw at least {least_wall:.4g} ms: "
                "work outside the timed "
                "stream"
            )
            raise Failed(Failure(fault=Fault.CHEAT, cheat=Cheat.CLOCK, message=message))

    def _block(self, calls: int, counted: bool = True) -> list[float]:
        order = [(self._turn + i) % len(self._sets) for i in range(calls)]
        self._turn += calls
        begun = time.perf_counter()
        reply = self._process.ask({"do": "clock_block", "order": order}, seconds=ANSWER_SECONDS)
        wall = (time.perf_counter() - begun) * 1e3
        with well_formed():
            times = [float(ms) for ms in reply["ms"]]
            block = float(reply["block_ms"])
        if len(times) != calls or not all(0 < ms < 1e7 for ms in times):
            raise Failed(
                Failure(
                    fault=Fault.CHEAT,
                    cheat=Cheat.CLOCK,
                    message="the device events give times that are impossible",
                )
            )
        if counted:
            net_wall = wall - BLOCK_SLACK - CALL_SLACK * calls
            self._blocks.times.append(times)
            self._blocks.believed.append(block >= MIN_SHARE_OF_WALL_TIME * net_wall)
            self._blocks.wall.append(wall / calls)
        return times

    def _outputs_taken(self, output_memory: Sequence[Any], index: int) -> bool:
        """Has the outputs of the last timed call on a set copied to the judge's memory; gives
        whether the calls left something behind.
        """
        for output in output_memory:
            _filled(output.memory)
        specs = [[{"tensor": output.spec} for output in output_memory]]
        message = {"do": "clock_check", "index": index, "sets": specs}
        reply = self._process.ask(message, seconds=ANSWER_SECONDS, shared=list(output_memory))
        with well_formed():
            return bool(reply["disturbed"])

    # -------------------------------------------------------------- the rest
    def _steps(self) -> tuple[StepTime, ...]:
        median = statistics.median(self._blocks.samples)
        message = {
            "do": "clock_launches", "calls": 1 if median >= LONG_CALL_MS else 3, "call_ms": median,
            "index": random.randrange(len(self._sets)),
        }  # fmt: skip
        reply = self._process.ask(message, seconds=ANSWER_SECONDS)
        with well_formed():
            total = float(reply["total_ms"])
            return tuple(_step_time(row, total) for row in reply["launches"])

    def _check_drift(self) -> float:
        """Returns the reference's relative drift from its time of record; measures the reference
        again if the drift is large.
        """
        before = self._reference.record.median
        drift = statistics.median(self._eager) / before - 1.0
        if abs(drift) > CLOCK_DRIFT:
            self._clock.refuse_a_shared_gpu()
            self._reference.open(self._reference.method)
            self._reference.time_anew()
            self._note(f"the reference was measured anew: {drift:+.1%} beside this candidate")
        return drift


def _step_time(row: Mapping[str, Any], total: float) -> StepTime:
    x, y, z = (*map(int, row["grid"]), 1, 1, 1)[:3]
    ms = float(row["ms"])
    return StepTime(
        name=clean_text(row["name"], 160),
        grid=(x, y, z),
        launch=bool(row["launch"]),
        milliseconds=ms,
        share=ms / total if total else 0.0,
    )


def _filled(memory: torch.Tensor) -> None:
    """Written over, and done: the other process does not wait for this one's stream, and
    gigabytes take longer than a message.
    """
    memory.fill_(0xFF)
    if memory.is_cuda:
        import torch

        torch.cuda.synchronize(memory.device)


def _compare_timed(compare: Callable[[int], None], index: int) -> None:
    try:
        compare(index)
    except Failed as failed:
        message = (
            "right when it was checked, wrong when it was timed (an answer remembered, or work skipped): "
            f"{failed.failure.message}"
        )
        raise Failed(
            Failure(
                fault=Fault.CHEAT,
                cheat=Cheat.CACHE,
                message=message,
                mismatch=failed.failure.mismatch,
            )
        ) from failed


@contextmanager
def well_formed() -> Iterator[None]:
    """Turns an error while an answer is read into Failed: a process that answers in another form is no longer ours."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        message = "the process that runs the kernels answers what is no answer"
        raise Failed(Failure(fault=Fault.CRASH, message=message)) from error

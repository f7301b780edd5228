"""Times a candidate that passed every check against its reference: equal inputs, alternating calls,
timed answers compared."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.tools.expected.kept_problems import GpuMemory, nbytes_of
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs, PreparedProblem
from kernelwright.tools.gpu.persistent_memory import is_roomy
from kernelwright.tools.hardware.gpus import Gpu
from kernelwright.tools.judging.calls import MARGIN_BYTE
from kernelwright.tools.judging.own_work import Rule
from kernelwright.tools.judging.own_work import judge as judge_work
from kernelwright.tools.judging.size_checks import POISON_BYTES, SizeChecks
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.references.models.model_state import BuffersAsTheyWere
from kernelwright.tools.references.shared_tensors import Buffers, SharedTensor
from kernelwright.tools.report import (
    KernelResources,
    LaunchTime,
    OwnWork,
    ProfileResult,
    TimingMethod,
)
from kernelwright.tools.timing.clock import Clock
from kernelwright.tools.timing.measurement import Measurement, RankedConfigurations, StepTime
from kernelwright.tools.timing.measuring import InputSet
from kernelwright.tools.timing.precision import candidate_precision, reference_precision
from kernelwright.tools.timing.reference_clock import ReferenceClock
from kernelwright.tools.timing.speed_of_light import add_speed_of_light
from kernelwright.tools.trace.trace import Choice

if TYPE_CHECKING:
    import torch

    from kernelwright.tools.judging.judge import Judge
    from kernelwright.tools.sizing.at_size import AtSize
    from kernelwright.tools.tracing.client import TracedCandidate

PROFILE_SECONDS = 120.0
"""Time limit, in seconds, of the candidate's process during timing."""
KEPT_INPUTS_DIVISOR = 10
"""Inputs of timed references are cached up to the GPU's memory divided by this."""
SPARING_DIVISOR = 16
"""Inputs and expected outputs above the GPU's memory divided by this are compared while nothing
else allocates."""
MAX_TIMED_REFERENCES = 24
"""Maximum number of cached timed references."""


@dataclass
class TimedProblem:
    """A reference with the inputs for its timing and that of its candidates."""

    clock: ReferenceClock
    sets: list[InputSet]
    expected: list[ExpectedOutputs]
    buffers: Buffers
    nbytes: int
    """Size of inputs and expected outputs in bytes, including float64 outputs."""

    def used_bytes(self) -> int:
        """Returns the bytes in use, including graphs."""
        return self.nbytes + self.clock.used_bytes()

    def put_inputs_back(self, changed: Iterable[int]) -> None:
        """Restores inputs of the first set, by index, after a call changed them."""
        import torch

        # The timed reference may write to its inputs, which the candidate's process shares.
        for index in changed:
            self.sets[0].values[index].copy_(self.expected[0].inputs[index])
        torch.cuda.synchronize()  # the other process reads them next

    def release(self) -> None:
        """Frees its memory."""
        self.clock.release()
        self.buffers.close()


class Profiler:
    """Times candidates on a GPU: holds the clock and the timed references."""

    def __init__(self, device: str, gpu: Gpu | None, sharers: int = 1) -> None:
        """sharers: number of judges, in all processes, that cache memory on this GPU."""
        self.device = device
        self._gpu = gpu
        self._sharers = sharers
        self._clock: Clock | None = None
        self._timed: OrderedDict[tuple[str, int], TimedProblem] = OrderedDict()
        self._records: dict[str, dict[TimingMethod, list[float]]] = {}
        """Recorded times by the problem's hash, also of references whose inputs were freed."""

    @property
    def clock(self) -> Clock:
        """The clock, created on first use: its creation measures the GPU."""
        if self._clock is None:
            self._clock = Clock(self.device)
        return self._clock

    def forget(self) -> None:
        """Frees all memory."""
        for timed in self._timed.values():
            timed.release()
        self._timed.clear()

    def drop_oldest(self, besides: Problem | None = None) -> bool:
        """Frees the least recently timed reference of any problem but `besides`; returns True if
        there was one.

        The replaying process must have unmapped its inputs.
        """
        oldest = next(
            (key for key in self._timed if besides is None or key[0] != besides.hash), None
        )
        if oldest is not None:
            self._timed.pop(oldest).release()
        return oldest is not None

    def profile(
        self, judge: Judge, candidate: TracedCandidate, base: AtSize, seed: int, rule: Rule, work: OwnWork | None,
        binaries: Mapping[str, Any], resources: Sequence[KernelResources],
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> tuple[ProfileResult, OwnWork | None]:  # fmt: skip
        """Returns the profile, and own work with its share of the GPU's time.

        alone: context manager that excludes other computation on the GPU. Raises Failed for a wrong
        answer during timing, or an impossible time.
        """
        begun, alone = time.monotonic(), _with_the_device_idle(alone)
        with alone() if self._clock is None else nullcontext():
            clock = self.clock
        prepared = judge.prepared(base.problem, seed)
        timed = self.reference(
            judge, base.problem, prepared, seed
        )  # may close the trace that is open
        first = timed.sets[0]
        for shared in first.shared:
            shared.fill_margins(MARGIN_BYTE)
        checks = SizeChecks(
            prepared, candidate.traced, base.index, judge.replayer, judge.buffers, [],
            inputs=(first.described, first.shared),
        )  # fmt: skip
        checks.calls.open(prepared.weights_seed, PROFILE_SECONDS, binaries)
        set_up_ms = judge.replayer.set_up() * 1e3
        checks.check(timed.expected[0], POISON_BYTES[0], 1, name="timed")
        timed.put_inputs_back(prepared.mutated)
        judge.give_back_unused_memory()
        output_memory = checks.calls.targets
        choices = self.choices(judge, checks, timed, alone)

        def compare(index: int) -> None:
            checks.compare(
                checks.calls.outputs_in_place(timed.expected[index]), timed.expected[index], "timed"
            )
            judge.give_back_unused_memory()  # what follows is timed in the candidate's process

        measurement = clock.measure(
            judge.replayer, timed.clock, timed.sets, choices=choices, output_memory=output_memory, compare=compare,
            sparing=SPARING_DIVISOR * timed.nbytes > GpuMemory(self.device).total(), alone=alone,
        )  # fmt: skip
        share = sum(step.share for step in measurement.steps if step.launch)
        if work is not None:
            work = judge_work(work.with_(share=share, share_of="gpu_time"), rule, True)
        tensors = [
            t
            for t in (*timed.expected[0].inputs, *prepared.model.parameters())
            if hasattr(t, "dtype")
        ]
        result = _result(
            measurement,
            share,
            set_up_ms,
            candidate_precision(resources),
            reference_precision(tensors),
        )
        result = add_speed_of_light(
            base.problem, result, self._gpu and self._gpu.with_(clocks=measurement.clocks)
        )
        self._let_go_of_large(judge, timed)
        return result.with_(seconds=time.monotonic() - begun), work

    def choices(
        self, judge: Judge, checks: SizeChecks, timed: TimedProblem,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> dict[int, int]:  # fmt: skip
        """Returns the fastest alternative of every autotuned launch. alone: as in `profile`."""
        steps = checks.trace.first if checks.trace.later is None else checks.trace.later
        if not any(isinstance(step, Choice) for step in steps):
            return {}
        with alone():
            ranked: tuple[RankedConfigurations, ...] = self.clock.choose(
                judge.replayer, timed.sets[0]
            )
        return {
            configurations.number: configurations.ranked[0]
            for configurations in ranked
            if configurations.ranked
        }

    def reference(
        self, judge: Judge, problem: Problem, prepared: PreparedProblem, seed: int
    ) -> TimedProblem:
        """Returns the reference with its inputs, from the cache or new."""
        key = (problem.hash, seed >> 16)
        if key not in self._timed:
            first = judge.expected(problem, seed, Draw.OWN, 0)
            nbytes = nbytes_of(first)
            self._free_memory_for(judge, nbytes)
            count = self.clock.sets_for(nbytes)
            expected = [
                first,
                *(judge.expected(problem, seed, Draw.OWN, 1) for _ in range(count - 1)),
            ]
            buffers = Buffers(self.device, unmap=judge.replayer.unmap)
            sets = [_input_set(buffers, draw, prepared.reference.arguments) for draw in expected]
            changed = [s.values[i] for s in sets for i in sorted(prepared.mutated)]
            record = self._records.setdefault(problem.hash, {})
            buffer_restorer = BuffersAsTheyWere(prepared.model, prepared.reference.changing or ())
            arguments = [prepared.reference.arguments(s.values) for s in sets]
            clock = ReferenceClock(
                prepared.model, arguments, changed, self.clock.flush_ms, record, buffers=buffer_restorer,
                settings=prepared.reference.settings,
            )  # fmt: skip
            self._timed[key] = TimedProblem(clock, sets, expected, buffers, nbytes * count)
        self._timed.move_to_end(key)
        return self._timed[key]

    def _free_memory_for(self, judge: Judge, nbytes: int) -> None:
        """Frees least recently timed references, until the new inputs fit into the cache.

        The replaying process unmaps their inputs first.
        """
        import torch

        _, whole = torch.cuda.mem_get_info(self.device)
        dropped = False
        while self._timed and (
            len(self._timed) >= MAX_TIMED_REFERENCES
            or sum(t.used_bytes() for t in self._timed.values()) + nbytes
            > whole // (KEPT_INPUTS_DIVISOR * self._sharers)
        ):
            _, old = self._timed.popitem(last=False)
            if not dropped:
                judge.unmap()
            dropped = True
            old.release()

    def _let_go_of_large(self, judge: Judge, timed: TimedProblem) -> None:
        """Frees the current reference if it takes half of the shared cache, other judges share the
        GPU, and free memory is scarce."""
        import torch

        free, total = torch.cuda.mem_get_info(self.device)
        most = total // (2 * KEPT_INPUTS_DIVISOR * self._sharers)
        if self._sharers > 1 and timed.nbytes > most and not is_roomy(free, total):
            judge.unmap()
            self._timed.popitem()  # the one that was used last
            timed.release()


def _with_the_device_idle(
    alone: Callable[[], AbstractContextManager[None]],
) -> Callable[[], AbstractContextManager[None]]:
    """Wraps `alone` with synchronisation at entry and exit, so that other processes may time
    meanwhile."""

    @contextmanager
    def entered() -> Iterator[None]:
        import torch

        torch.cuda.synchronize()
        with alone():
            yield
            torch.cuda.synchronize()

    return entered


def _input_set(
    buffers: Buffers, expected: ExpectedOutputs, arguments: Callable[[list[Any]], list[Any]]
) -> InputSet:
    """Copies inputs to shared memory. arguments: nests the inputs as forward's arguments."""
    import torch

    from kernelwright.tools import wire

    shared: list[SharedTensor] = []

    def place(tensor: torch.Tensor) -> dict[str, Any]:
        copy = buffers.together([tensor])[0]
        copy.fill_margins(MARGIN_BYTE)
        copy.tensor.copy_(tensor)
        shared.append(copy)
        return copy.spec

    described = [wire.describe(v, place) for v in arguments(expected.inputs)]
    waiting = iter(shared)
    values = [next(waiting).tensor if isinstance(v, torch.Tensor) else v for v in expected.inputs]
    return InputSet(values=values, described=described, shared=shared)


def _result(
    measurement: Measurement, share: float, set_up_ms: float, precision: str, eager_precision: str
) -> ProfileResult:
    by_name: dict[str, float] = {}
    for step in measurement.steps:
        by_name[step.name] = by_name.get(step.name, 0.0) + step.milliseconds
    return ProfileResult(
        device=measurement.device,
        candidate=measurement.candidate,
        eager=measurement.eager,
        speedup=measurement.speedup,
        speedup_low=measurement.speedup_low,
        wall_ms=measurement.wall_ms,
        own_share=share,
        gpu_kernels=by_name,
        clocks=measurement.clocks,
        neighbours=measurement.neighbours,
        notes=measurement.notes,
        setup_ms=set_up_ms,
        host_ms=measurement.host_ms,
        eager_host_ms=measurement.eager_host_ms,
        precision=precision,
        eager_precision=eager_precision,
        launches=tuple(_launch_time(s) for s in measurement.steps if s.launch),
    )


def _launch_time(step: StepTime) -> LaunchTime:
    x, y, z = (*step.grid, 1, 1, 1)[:3]
    return LaunchTime(kernel=step.name, grid=(x, y, z), ms=step.milliseconds, share=step.share)

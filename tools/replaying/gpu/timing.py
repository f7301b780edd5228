"""Times the replayed steps of one trace on a GPU: the process side of the clock (tools/timing is the judge's).

Everything on the device that could remember an earlier call is put back before each timed one (survivors.py), the L2
cache is written over, and one replay of a CUDA graph is timed between two device events (stopwatch.py).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from kernelwright.tools.gpu.cuda_graphs import Captured, CaptureFailed, Pool
from kernelwright.tools.gpu.persistent_memory import (
    PersistentTensors,
    give_back_unused,
    merge_ranges,
    poison,
    poison_free,
)
from kernelwright.tools.gpu.stopwatch import (
    StepTimes,
    flush_l2_cache,
    host_time,
    idle_device,
    timed_block,
)
from kernelwright.tools.nested import tensors_of
from kernelwright.tools.replaying import operators
from kernelwright.tools.replaying.allocations import Allocations
from kernelwright.tools.replaying.gpu.autotune_choice import (
    as_rows,
    choices_of,
    ranked,
    time_alternatives,
)
from kernelwright.tools.trace.trace import Choice, Launch, Operator, Step, Traced, all_steps

MAX_REPORTED_LAUNCHES = 256
"""Rows of the table of launches."""

Inputs = Sequence[Any]


class Run(Protocol):
    """One call's steps. `around` is entered round every operator and launch that runs."""

    def __call__(
        self,
        inputs: Inputs,
        *,
        allocations: Allocations,
        choices: Mapping[int, int],
        around: Callable[[Any], AbstractContextManager[Any]] | None = None,
    ) -> Any:
        """What forward returns. choices: number of the choice -> alternative."""


class TimedTrace:
    """The clock of one opened trace.

    The judge asks `clock_choose` where there are choices, `clock_open`, `clock_block` several times, `clock_check`,
    `clock_launches`, `clock_close`.
    """

    def __init__(
        self,
        run: Run,
        steps: Sequence[Step],
        own: Callable[[], Sequence[Any]],
        given: Callable[[], Sequence[Any]],
        label: Callable[[Any], tuple[str, tuple[int, ...]]],
    ) -> None:
        """run, steps: a later call's (the first one's where there is no other).

        own: the tensors that outlive a call and that the set-up made.

        given: the judge's weights. label: name and grid of a launch, name and () of an operator.
        """
        self._run, self._steps, self._own, self._given, self._label = run, steps, own, given, label
        self._choices: dict[int, int] = {}
        self._calls: list[_Call] = []
        self._host_us = 0.0

    def answer(
        self, message: Mapping[str, Any], sets: Callable[[Any], Sequence[Inputs]]
    ) -> dict[str, Any]:
        """One of the messages above.

        sets: gives the inputs that came with it, as `run` takes them. Raises what running the steps raises.
        """
        return getattr(self, f"_{message['do']}")(
            message, sets(message) if "sets" in message else ()
        )

    def _clock_choose(self, message: Mapping[str, Any], sets: Sequence[Inputs]) -> dict[str, Any]:
        """`seconds`: for all.

        `ranked`: by choice the alternatives, fastest first, without those that cannot be launched; `ms`: the time of
        each.
        """

        inputs = PersistentTensors([], [], sets[:1]).sets[0]

        def call(taken: Mapping[int, int], times: StepTimes) -> None:
            self._timed_steps(inputs, taken, times)

        times = time_alternatives(call, choices_of(self._steps), float(message["seconds"]))
        return {"ranked": as_rows(ranked(times)), "ms": as_rows(times)}

    def _timed_steps(self, inputs: Inputs, taken: Mapping[int, int], times: StepTimes) -> None:
        import torch

        flush_l2_cache()
        idle_device(self._host_us)
        begun = time.perf_counter()
        self._run(inputs, allocations=Allocations(None, 0), choices=taken, around=times)
        self._host_us = (time.perf_counter() - begun) * 1e6
        torch.cuda.synchronize()

    def _clock_open(self, message: Mapping[str, Any], sets: Sequence[Inputs]) -> dict[str, Any]:
        """Captures one call on each set.

        `choices`: pairs of number and alternative. `graphs`: False where the reference cannot be captured.
        `everything`: restore all memory before each call.
        """
        self._release()
        self._choices = {int(number): int(index) for number, index in message.get("choices", ())}
        kept = PersistentTensors(
            list(self._own()), list(self._given()), sets, everything=bool(message.get("everything"))
        )
        timed = kept.sets
        self._host_us = host_time(
            lambda: self._run(timed[0], allocations=Allocations(None, 0), choices=self._choices)
        )
        kept.note_changes()
        give_back_unused()
        pool, why = (Pool() if message.get("graphs", True) else None), ""
        libraries = any(
            _has_work(step) for step in all_steps(self._steps) if not isinstance(step, Launch)
        )
        try:
            for inputs in timed:
                first = libraries and not self._calls
                self._calls.append(_Call(self._run, inputs, self._choices, pool, kept, first=first))
        except CaptureFailed as error:
            self._release()
            pool, why = None, str(error)
            self._calls = [_Call(self._run, inputs, self._choices, None, kept) for inputs in timed]
        return {
            "captured": pool is not None,
            "why": why,
            "host_ms": self._host_us / 1e3,
            "copied": kept.copied,
        }

    def _clock_block(self, message: Mapping[str, Any], sets: Sequence[Inputs]) -> dict[str, Any]:
        """`order`: which sets, one call each. Milliseconds of each call and of the whole block."""
        calls = [self._calls[int(index)] for index in message["order"]]
        waiting = 0.0 if calls[0].captured else self._host_us
        ms, block = timed_block([c.replay for c in calls], [c.prepare for c in calls], waiting)
        return {"ms": ms, "block_ms": block}

    def _clock_check(self, message: Mapping[str, Any], sets: Sequence[Inputs]) -> dict[str, Any]:
        """`index`: of a set; the outputs of its last timed call are copied to `sets[0]`, the judge's places, where form
        and dtype agree.

        `disturbed`: memory that outlives a call and that is not restored before each has changed.
        """
        import torch

        call = self._calls[int(message["index"])]
        copied = []
        for place, made in zip(sets[0], tensors_of(call.outputs), strict=False):
            fits = place.shape == made.shape and place.dtype == made.dtype
            copied.append(fits)
            if fits:
                place.copy_(made)
        torch.cuda.synchronize()  # the judge reads the places next
        return {"copied": copied, "disturbed": call.kept.disturbed()}

    def _clock_launches(self, message: Mapping[str, Any], sets: Sequence[Inputs]) -> dict[str, Any]:
        """Milliseconds of every launch of a call, and of every operator that has work for the device, each by
        itself and in order: the median over `calls` calls, after one more that is not counted where they are several.
        Where there is but one, it is the call: `call_ms`, which no call is made for.
        """
        working = [step for step in self._steps if isinstance(step, Choice) or _has_work(step)]
        if len(working) == 1 and isinstance(working[0], Launch):
            rows = [self._row(working[0], float(message["call_ms"]))]
            return {"launches": rows, "total_ms": rows[0]["ms"]}
        call, calls = self._calls[int(message.get("index", 0))], int(message.get("calls", 3))
        uncounted = int(calls > 1)
        found: list[list[tuple[Any, float]]] = []
        for _ in range(calls + uncounted):
            times = StepTimes(_has_work)
            call.kept.restore()
            self._timed_steps(call.inputs, self._choices, times)
            found.append(times.told())
        rows = []
        for same in zip(*found[uncounted:], strict=True):
            rows.append(self._row(same[0][0], statistics.median(ms for _, ms in same)))
        return {
            "launches": rows[:MAX_REPORTED_LAUNCHES],
            "total_ms": sum(float(row["ms"]) for row in rows),
        }

    def _row(self, step: Any, ms: float) -> dict[str, Any]:
        name, grid = self._label(step)
        return {"name": name, "grid": list(grid), "launch": isinstance(step, Launch), "ms": ms}

    def _clock_close(self, message: Mapping[str, Any], sets: Sequence[Inputs]) -> dict[str, Any]:
        """Frees the graphs and what they hold, and gives memory back to the device where that is much of it."""
        self._release()
        give_back_unused()
        return {}

    def _release(self) -> None:
        for call in self._calls:
            call.release()
        self._calls = []


def _has_work(step: Any) -> bool:
    """A launch, or an operator that neither only views nor only allocates."""
    if isinstance(step, Launch):
        return True
    known = operators.known(step.op) if isinstance(step, Operator) else None
    return known is not None and not known.view and known.name not in operators.UNINITIALISED


def timing_of(replay: Any, traced: Traced, launch: Callable[..., None]) -> TimedTrace:
    """Makes the clock of the trace that is open. replay: tools.replaying.replay.Replay. launch: as a `Call` of steps.py
    takes it.

    A trace whose later calls differ from the first is timed by those; the first one must have been run on some inputs.
    """
    from kernelwright.tools.replaying.steps import Call

    trace = traced.traces[0]
    assert trace is not None
    state = {_place(t) for t in replay.state.values()}

    def run(
        inputs: Inputs, *, allocations: Allocations, choices: Mapping[int, int], around: Any = None
    ) -> Any:
        return replay.run(
            "later", inputs, Call(launch, allocations, choices=choices, around=around), None
        )

    def label(step: Any) -> tuple[str, tuple[int, ...]]:
        if isinstance(step, Launch):
            return traced.functions[traced.kernels[step.kernel].function].name, tuple(step.grid)
        return str(getattr(step, "op", type(step).__name__)), ()

    return TimedTrace(
        run,
        trace.first if trace.later is None else trace.later,
        own=lambda: [t for t in tensors_of(replay.persistent_tensors()) if _place(t) not in state],
        given=lambda: list(replay.state.values()),
        label=label,
    )


def _place(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


class _Call:
    """One call on one set of inputs, captured where there is a pool."""

    def __init__(
        self,
        run: Run,
        inputs: Inputs,
        choices: Mapping[int, int],
        pool: Pool | None,
        kept: PersistentTensors,
        *,
        first: bool = True,
    ) -> None:
        """first: whether torch's libraries make something for the pool's stream when these steps first run there."""
        self._run, self.inputs, self._choices, self.kept = run, inputs, choices, kept
        self._pooled = pool is not None
        self._allocated: list[tuple[int, int]] = []
        self.outputs: Any = None
        self._graph = Captured(self._once, pool, first=first) if pool else None

    @property
    def captured(self) -> bool:
        """Whether the call is a CUDA graph."""
        return self._graph is not None

    def _once(self) -> Any:
        allocations = Allocations(None, 0)
        self.outputs = self._run(self.inputs, allocations=allocations, choices=self._choices)
        self._allocated = merge_ranges(allocations.ranges) if self._pooled else allocations.ranges
        return self.outputs

    def prepare(self) -> None:
        """What an earlier call could have left behind is taken away."""
        self.kept.restore()
        if self._graph:
            poison(self._allocated)
        else:
            self.outputs = None
            poison_free(self._allocated)

    def replay(self) -> None:
        """Runs the call once, from its graph where it has one."""
        if self._graph:
            self._graph.replay()
        else:
            self._once()

    def release(self) -> None:
        """Lets go of the outputs and of the graph."""
        self.outputs = None
        if self._graph:
            self._graph.release()

"""Times the replayed steps of a trace on a GPU: the replaying process's side of the clock
(tools/timing is the judge's).

Before each timed call, all device memory that could hold results of an earlier call is restored
(persistent_memory.py) and the L2 cache is overwritten. Then a replay of a CUDA graph is timed
between two device events (stopwatch.py).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

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

if TYPE_CHECKING:
    import torch


MAX_REPORTED_LAUNCHES = 256
"""Maximum number of rows in the table of launches."""

Inputs = Sequence[Any]


class CallRunner(Protocol):
    """Steps of a call. `around` is entered around every operator and launch."""

    def __call__(
        self,
        inputs: Inputs,
        *,
        allocations: Allocations,
        choices: Mapping[int, int],
        around: Callable[[Any], AbstractContextManager[Any]] | None = None,
    ) -> Any:
        """Returns forward's outputs. choices: number of the choice -> alternative."""


class TimedTrace:
    """The clock of an open trace.

    The judge sends `clock_choose` if there are autotuned launches, then `clock_open`, `clock_block`
    several times, `clock_check`, `clock_launches` and `clock_close`.
    """

    def __init__(
        self,
        run: CallRunner,
        steps: Sequence[Step],
        own_tensors: Callable[[], Sequence[Any]],
        judge_tensors: Callable[[], Sequence[Any]],
        label: Callable[[Any], tuple[str, tuple[int, ...]]],
    ) -> None:
        """Stores the parts of the trace.

        run, steps: those of a later call, or of the first if there is none. own_tensors: returns
        the tensors made by the set-up that outlive a call. judge_tensors: returns the judge's
        weights. label: returns name and grid of a launch, name and () of an operator.
        """
        self._run = run
        self._steps = steps
        self._own_tensors = own_tensors
        self._judge_tensors = judge_tensors
        self._label = label
        self._choices: dict[int, int] = {}
        self._calls: list[_Call] = []
        self._host_us = 0.0

    def answer(
        self, message: Mapping[str, Any], sets: Callable[[Any], Sequence[Inputs]]
    ) -> dict[str, Any]:
        """Answers a message. sets: converts inputs in the message to those of `run`. Raises errors
        of the steps."""
        return getattr(self, f"_{message['do']}")(
            message, sets(message) if "sets" in message else ()
        )

    def _clock_choose(self, message: Mapping[str, Any], sets: Sequence[Inputs]) -> dict[str, Any]:
        """Times autotuned alternatives. `seconds`: time limit for all.

        Returns `ranked`: by choice the alternatives that can be launched, fastest first; `ms`:
        their times.
        """

        inputs = PersistentTensors([], [], sets[:1]).sets[0]

        def call(alternatives: Mapping[int, int], times: StepTimes) -> None:
            self._timed_steps(inputs, alternatives, times)

        times = time_alternatives(call, choices_of(self._steps), float(message["seconds"]))
        return {"ranked": as_rows(ranked(times)), "ms": as_rows(times)}

    def _timed_steps(
        self, inputs: Inputs, alternatives: Mapping[int, int], times: StepTimes
    ) -> None:
        import torch

        flush_l2_cache()
        idle_device(self._host_us)
        begun = time.perf_counter()
        self._run(inputs, allocations=Allocations(None, 0), choices=alternatives, around=times)
        self._host_us = (time.perf_counter() - begun) * 1e6
        torch.cuda.synchronize()

    def _clock_open(self, message: Mapping[str, Any], sets: Sequence[Inputs]) -> dict[str, Any]:
        """Captures a call on each set of inputs.

        `choices`: pairs of number and alternative. `graphs`: False if the reference cannot be
        captured. `everything`: restores all memory before each call.
        """
        self._release()
        self._choices = {int(number): int(index) for number, index in message.get("choices", ())}
        persistent = PersistentTensors(
            list(self._own_tensors()),
            list(self._judge_tensors()),
            sets,
            everything=bool(message.get("everything")),
        )
        timed = persistent.sets
        self._host_us = host_time(
            lambda: self._run(timed[0], allocations=Allocations(None, 0), choices=self._choices)
        )
        persistent.note_changes()
        give_back_unused()
        pool, why = (Pool() if message.get("graphs", True) else None), ""
        libraries = any(
            _has_work(step) for step in all_steps(self._steps) if not isinstance(step, Launch)
        )
        try:
            for inputs in timed:
                first = libraries and not self._calls
                self._calls.append(
                    _Call(self._run, inputs, self._choices, pool, persistent, first=first)
                )
        except CaptureFailed as error:
            self._release()
            pool, why = None, str(error)
            self._calls = [
                _Call(self._run, inputs, self._choices, None, persistent) for inputs in timed
            ]
        return {
            "captured": pool is not None,
            "why": why,
            "host_ms": self._host_us / 1e3,
            "copied": persistent.copied,
        }

    def _clock_block(self, message: Mapping[str, Any], sets: Sequence[Inputs]) -> dict[str, Any]:
        """Times a block of calls, on the sets in `order`. Returns milliseconds of each call and of
        the whole block."""
        calls = [self._calls[int(index)] for index in message["order"]]
        waiting = 0.0 if calls[0].captured else self._host_us
        ms, block = timed_block([c.replay for c in calls], [c.prepare for c in calls], waiting)
        return {"ms": ms, "block_ms": block}

    def _clock_check(self, message: Mapping[str, Any], sets: Sequence[Inputs]) -> dict[str, Any]:
        """Copies the outputs of the last timed call of set `index` to `sets[0]`, the judge's
        tensors, if shape and dtype agree.

        Returns `disturbed`: True if memory that outlives a call and is not restored has changed.
        """
        import torch

        call = self._calls[int(message["index"])]
        copied = []
        for target, output in zip(sets[0], tensors_of(call.outputs), strict=False):
            fits = target.shape == output.shape and target.dtype == output.dtype
            copied.append(fits)
            if fits:
                target.copy_(output)
        torch.cuda.synchronize()  # the judge reads the places next
        return {"copied": copied, "disturbed": call.persistent.disturbed()}

    def _clock_launches(self, message: Mapping[str, Any], sets: Sequence[Inputs]) -> dict[str, Any]:
        """Times each launch and each operator with device work separately, in order: the median
        over `calls` calls.

        With several calls, an additional first call is not counted. A call with a single such step
        takes `call_ms`, without another run.
        """
        working = [step for step in self._steps if isinstance(step, Choice) or _has_work(step)]
        if len(working) == 1 and isinstance(working[0], Launch):
            rows = [self._row(working[0], float(message["call_ms"]))]
            return {"launches": rows, "total_ms": rows[0]["ms"]}
        call, calls = self._calls[int(message.get("index", 0))], int(message.get("calls", 3))
        uncounted = int(calls > 1)
        timed_calls: list[list[tuple[Any, float]]] = []
        for _ in range(calls + uncounted):
            times = StepTimes(_has_work)
            call.persistent.restore()
            self._timed_steps(call.inputs, self._choices, times)
            timed_calls.append(times.step_times())
        rows = []
        for same in zip(*timed_calls[uncounted:], strict=True):
            rows.append(self._row(same[0][0], statistics.median(ms for _, ms in same)))
        return {
            "launches": rows[:MAX_REPORTED_LAUNCHES],
            "total_ms": sum(float(row["ms"]) for row in rows),
        }

    def _row(self, step: object, ms: float) -> dict[str, Any]:
        name, grid = self._label(step)
        return {"name": name, "grid": list(grid), "launch": isinstance(step, Launch), "ms": ms}

    def _clock_close(self, message: Mapping[str, Any], sets: Sequence[Inputs]) -> dict[str, Any]:
        """Frees the graphs and their memory, and returns large amounts of memory to the device."""
        self._release()
        give_back_unused()
        return {}

    def _release(self) -> None:
        for call in self._calls:
            call.release()
        self._calls = []


def _has_work(step: object) -> bool:
    """Returns True for launches and for operators that are neither views nor mere allocations."""
    if isinstance(step, Launch):
        return True
    known = operators.known(step.op) if isinstance(step, Operator) else None
    return known is not None and not known.view and known.name not in operators.UNINITIALISED


def timing_of(replay: Any, traced: Traced, launch: Callable[..., None]) -> TimedTrace:
    """Returns the clock of the open trace. replay: tools.replaying.replay.Replay. launch: as in
    `Call` of steps.py.

    A trace whose later calls differ from the first is timed by later calls; a first call must have
    been run.
    """
    from kernelwright.tools.replaying.steps import Call

    trace = traced.traces[0]
    assert trace is not None
    state = {_storage_address(t) for t in replay.state.values()}

    def run(
        inputs: Inputs, *, allocations: Allocations, choices: Mapping[int, int], around: Any = None
    ) -> Any:
        return replay.run(
            "later", inputs, Call(launch, allocations, choices=choices, around=around), None
        )

    def label(step: object) -> tuple[str, tuple[int, ...]]:
        if isinstance(step, Launch):
            return traced.functions[traced.kernels[step.kernel].function].name, tuple(step.grid)
        return str(getattr(step, "op", type(step).__name__)), ()

    return TimedTrace(
        run,
        trace.first if trace.later is None else trace.later,
        own_tensors=lambda: [
            t for t in tensors_of(replay.persistent_tensors()) if _storage_address(t) not in state
        ],
        judge_tensors=lambda: list(replay.state.values()),
        label=label,
    )


def _storage_address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


class _Call:
    """A call on a set of inputs, captured in a CUDA graph if there is a pool."""

    def __init__(
        self,
        run: CallRunner,
        inputs: Inputs,
        choices: Mapping[int, int],
        pool: Pool | None,
        persistent: PersistentTensors,
        *,
        first: bool = True,
    ) -> None:
        """first: torch's libraries allocate for the pool's stream when these steps first run there."""
        self._run = run
        self.inputs = inputs
        self._choices = choices
        self.persistent = persistent
        self._pooled = pool is not None
        self._allocated: list[tuple[int, int]] = []
        self.outputs: Any = None
        self._graph = Captured(self._once, pool, first=first) if pool else None

    @property
    def captured(self) -> bool:
        """True if the call is a CUDA graph."""
        return self._graph is not None

    def _once(self) -> Any:
        allocations = Allocations(None, 0)
        self.outputs = self._run(self.inputs, allocations=allocations, choices=self._choices)
        self._allocated = merge_ranges(allocations.ranges) if self._pooled else allocations.ranges
        return self.outputs

    def prepare(self) -> None:
        """Removes results of earlier calls from memory."""
        self.persistent.restore()
        if self._graph:
            poison(self._allocated)
        else:
            self.outputs = None
            poison_free(self._allocated)

    def replay(self) -> None:
        """Runs the call once, from its graph if captured."""
        if self._graph:
            self._graph.replay()
        else:
            self._once()

    def release(self) -> None:
        """Releases the outputs and the graph."""
        self.outputs = None
        if self._graph:
            self._graph.release()

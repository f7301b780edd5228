"""The reference's own time on a GPU: measured once per problem, and checked beside each
candidate.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from kernelwright.tools.gpu.cuda_graphs import Captured, CaptureFailed, Pool
from kernelwright.tools.gpu.persistent_memory import merge_ranges, poison
from kernelwright.tools.gpu.stopwatch import host_time, timed_block
from kernelwright.tools.nested import tensors_of
from kernelwright.tools.references.models.model_state import BuffersAsTheyWere
from kernelwright.tools.report import Timing, TimingMethod
from kernelwright.tools.timing.measurement import is_settled, summarise_samples

BUDGET_MS, MIN_CALLS, MAX_CALLS = 200.0, 8, 60
"""GPU time of the measurement of record in milliseconds, and the smallest and the largest number of its calls."""
BLOCK_CALLS = 8
SETTLED_WIDTH = 0.004
"""Relative width of the median's interval at which a measurement of record ends before its budget is spent."""
HELD_GRAPHS_DIVISOR = 10
"""Graphs are kept between candidates up to this fraction (1/N) of the GPU's memory."""


def time_in_turns(clocks: Sequence[ReferenceClock], method: TimingMethod | None = None) -> None:
    """Measures the time of record of every clock, in alternating blocks, until all are settled or
    out of budget.

    method: each clock is opened with this method before its block and frees large graphs after
    it, so that several large references share the memory of a GPU; None: the clocks are open
    already.
    """
    samples: list[list[float]] = []
    most: list[int] = []
    for clock in clocks:
        with _opened(clock, method):
            clock.block(2)
            first = clock.block(3)
        samples.append(first)
        most.append(clock.calls_in_budget(first))
    while any(
        _needs_more(samples_of_clock, calls)
        for samples_of_clock, calls in zip(samples, most, strict=True)
    ):
        for clock, samples_of_clock, calls in zip(clocks, samples, most, strict=True):
            if len(samples_of_clock) < calls:
                with _opened(clock, method):
                    samples_of_clock += clock.block(min(BLOCK_CALLS, calls - len(samples_of_clock)))
    for clock, samples_of_clock in zip(clocks, samples, strict=True):
        clock.set_record(samples_of_clock)


def _needs_more(samples: Sequence[float], most: int) -> bool:
    return len(samples) < most and not is_settled(summarise_samples(samples), SETTLED_WIDTH)


@contextmanager
def _opened(clock: ReferenceClock, method: TimingMethod | None) -> Iterator[None]:
    if method is not None:
        clock.open(method)
    yield
    if method is not None:
        clock.release_if_large()


class ReferenceClock:
    """Reference, eager or compiled, on sets of inputs, in this process. Graphs are captured on
    demand.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        sets: Sequence[Sequence[Any]],
        changed: Sequence[Any] = (),
        flush_ms: float = 0.1,
        record: dict[TimingMethod, list[float]] | None = None,
        buffers: BuffersAsTheyWere | None = None,
        settings: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Prepares nothing on the GPU yet.

        call: the reference's forward, which has run before. sets: its arguments, tensors in the
        memory shared with the candidate. changed: tensors which a call writes. flush_ms: time of
        a write over the cache. record: times of record, in milliseconds, by method, from an
        earlier clock of this reference; filled here. buffers: buffers of the reference which a
        call changes, such as running statistics. settings: context with the reference's torch
        settings.
        """
        self._call = call
        self._sets = sets
        self._flush_ms = flush_ms
        self._changed = [(t, t.clone()) for t in changed]
        self._captured: list[Captured] = []
        self._outputs: dict[int, list[tuple[int, int]]] = {}
        self.host_us = 0.0
        """Host time for launching a call without a graph, in microseconds; 0 before `open`."""
        self._next = 0
        self.method = TimingMethod.GRAPH
        """How the calls of a block are timed."""
        self.why = ""
        """The error of capturing a graph; it is never tried again."""
        self._record = {} if record is None else record
        self._buffers = buffers
        self._settings = settings

    def warm_up(self) -> None:
        """Calls the reference once on each set, which triggers compilation and the choice of
        algorithms.
        """
        try:
            with self._settings():
                for inputs in self._sets:
                    self._once(inputs)
        finally:
            self._leave_as_given()

    def open(self, method: TimingMethod = TimingMethod.GRAPH) -> None:
        """Prepares timing by a method. Falls back from GRAPH to QUEUED if the reference cannot be
        captured; `method` then holds the effective method.
        """
        try:
            with self._settings():
                self._open(method)
        finally:
            self._leave_as_given()

    def _open(self, method: TimingMethod) -> None:
        if not self.host_us:
            self.host_us = host_time(lambda: self._once(self._sets[0]))
        self.method = TimingMethod.QUEUED if method is TimingMethod.GRAPH and self.why else method
        if self.method is not TimingMethod.GRAPH:
            self.release()
            return
        if self._captured:
            return
        pool = Pool()
        try:
            for inputs in self._sets:
                captured = Captured(lambda inputs=inputs: self._once(inputs), pool)  # type: ignore[misc]
                self._captured.append(captured)
                self._outputs[id(captured)] = self._places_of(captured)
        except CaptureFailed as error:
            self.why = str(error)
            self._open(TimingMethod.QUEUED)

    def _once(self, inputs: Sequence[Any]) -> Any:
        import torch

        with torch.no_grad():
            return self._call(*inputs)

    def _prepare(self, captured: Captured | None = None) -> None:
        """Prepares the memory as before a candidate's call: restores changed tensors, and poisons
        the outputs.
        """
        self._restore()
        if captured is not None:
            poison(self._outputs[id(captured)])

    def _restore(self) -> None:
        """Restores everything that a call changes: candidates are timed on copies of the same
        memory, and the next candidate is judged on the reference's initial state.
        """
        for tensor, copy in self._changed:
            tensor.copy_(copy)
        if self._buffers is not None:
            self._buffers.put_back()

    def _leave_as_given(self) -> None:
        """Restored, and done: the candidate's process reads the same memory next, and does not
        wait for this one's stream.
        """
        import torch

        if self._changed or self._buffers is not None:
            self._restore()
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()

    def _places_of(self, captured: Captured) -> list[tuple[int, int]]:
        """Returns address and size of the outputs allocated by the graph, without memory of
        inputs, weights or model state.
        """
        storages = [
            t.untyped_storage() for t in tensors_of(captured.outputs) if t.is_cuda and t.numel()
        ]
        return merge_ranges(
            [(s.data_ptr(), s.nbytes()) for s in storages if s.data_ptr() not in captured.lasting]
        )

    def block(self, calls: int) -> list[float]:
        """Milliseconds of so many calls, the sets in turns."""
        order = [(self._next + i) % len(self._sets) for i in range(calls)]
        self._next = (self._next + calls) % len(self._sets)
        if self.method is TimingMethod.GRAPH:
            chosen = [self._captured[i] for i in order]
            before: list[Callable[[], Any]] = [lambda c=c: self._prepare(c) for c in chosen]  # type: ignore[misc]
            return self._timed([c.replay for c in chosen], before, 0.0)
        eager: list[Callable[[], Any]] = [lambda i=i: self._once(self._sets[i]) for i in order]  # type: ignore[misc]
        waiting = self.host_us if self.method is TimingMethod.QUEUED else 0.0
        return self._timed(eager, [self._prepare] * calls, waiting)

    def _timed(
        self, calls: list[Callable[[], Any]], before: list[Callable[[], Any]], waiting: float
    ) -> list[float]:
        try:
            with self._settings():
                return timed_block(calls, before, waiting)[0]
        finally:
            self._leave_as_given()

    @property
    def record(self) -> Timing:
        """Returns the measurement of record by the current method; measures if there is none."""
        if self.method not in self._record:
            self.time_anew()
        return summarise_samples(self._record[self.method], self.method)

    def time_anew(self) -> None:
        """Repeats the measurement of record."""
        time_in_turns([self])

    def calls_in_budget(self, samples: Sequence[float]) -> int:
        """Returns the largest number of calls of a measurement of record, given the milliseconds of a few."""
        calls = int(BUDGET_MS / (statistics.median(samples) + self._flush_ms))
        return max(MIN_CALLS, min(MAX_CALLS, calls))

    def set_record(self, samples: list[float]) -> None:
        """Takes these milliseconds as the measurement of record by the present method."""
        self._record[self.method] = samples

    def release_if_large(self) -> None:
        """Frees the graphs if they take much memory; the record stays."""
        import torch

        _, total = torch.cuda.mem_get_info()
        if self.used_bytes() > total // HELD_GRAPHS_DIVISOR:
            self.release()

    def used_bytes(self) -> int:
        """Returns the bytes of the graphs' outputs."""
        return sum(
            t.untyped_storage().nbytes()
            for c in self._captured
            for t in tensors_of(c.outputs)
            if t.is_cuda
        )

    def release(self) -> None:
        """Lets go of the captured graphs and of their outputs."""
        for captured in self._captured:
            captured.release()
        self._captured = []
        self._outputs = {}

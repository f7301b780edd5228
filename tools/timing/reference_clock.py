"""The reference's own time on one GPU: measured once for a problem, and looked at again beside each candidate."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kernelwright.tools.nested import tensors_of
from kernelwright.tools.references.reference import BuffersAsTheyWere
from kernelwright.tools.replaying.gpu.cuda_graphs import Captured, CaptureFailed, Pool
from kernelwright.tools.replaying.gpu.persistent_memory import merge_ranges, poison
from kernelwright.tools.replaying.gpu.stopwatch import host_time, timed_block
from kernelwright.tools.report import Timing
from kernelwright.tools.timing.measurement import is_settled, summarise_samples

BUDGET_MS, MIN_CALLS, MAX_CALLS = 200.0, 8, 60
"""GPU time of the measurement of record in milliseconds, and the smallest and the largest number of its calls."""
BLOCK_CALLS = 8
HELD_GRAPHS_DIVISOR = 10
"""Graphs are kept between candidates where they hold no more than this part of the GPU's memory."""


class ReferenceClock:
    """One reference on some sets of inputs, in the judge's process. Graphs are captured when they are needed."""

    def __init__(
        self,
        call: Callable[..., Any],
        sets: Sequence[Sequence[Any]],
        changed: Sequence[Any] = (),
        flush_ms: float = 0.1,
        record: dict[bool, list[float]] | None = None,
        buffers: BuffersAsTheyWere | None = None,
        settings: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """call: the reference's forward.

        sets: its arguments, tensors in the memory that the candidate is given too. changed: tensors that a call writes
        to.

        flush_ms: what one write over the cache costs. record: times of record, in milliseconds, with and without a
        graph, that an earlier clock of this reference measured; filled here. buffers: those of the reference that a
        call changes, such as running statistics. settings: a context in which torch is set as the reference sets it.
        """
        self._call, self._sets, self._flush_ms = call, sets, flush_ms
        self._changed = [(t, t.clone()) for t in changed]
        self._captured: list[Captured] = []
        self._outputs: dict[int, list[tuple[int, int]]] = {}
        self._host_us = 0.0
        self._next = 0
        self.graphs = True
        """False once it was found that it cannot be captured, or that a candidate cannot."""
        self.why = ""
        """The error of capturing a graph."""
        self._record = {} if record is None else record
        self._buffers = buffers
        self._settings = settings

    def open(self, graphs: bool = True) -> None:
        """Makes it ready to be timed. graphs: whether to capture it; afterwards `graphs` says whether it is."""
        try:
            with self._settings():
                self._open(graphs)
        finally:
            self._leave_as_given()

    def _open(self, graphs: bool) -> None:
        self.graphs = graphs and not self.why
        if not self.graphs:
            self.release()
            self._host_us = host_time(lambda: self._once(self._sets[0]))
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
            self._open(graphs=False)

    def _once(self, inputs: Sequence[Any]) -> Any:
        import torch

        with torch.no_grad():
            return self._call(*inputs)

    def _prepare(self, captured: Captured | None = None) -> None:
        """Prepares as before a candidate's call: what a call changes is restored, and its outputs are poisoned."""
        self._restore()
        if captured is not None:
            poison(self._outputs[id(captured)])

    def _restore(self) -> None:
        """All that a call changes is what it was: candidates are timed on copies of the same memory, and the next one
        is judged on the state that the reference began with.
        """
        for tensor, copy in self._changed:
            tensor.copy_(copy)
        if self._buffers is not None:
            self._buffers.put_back()

    def _leave_as_given(self) -> None:
        """Restored, and done: the candidate's process reads the same memory next, and does not wait for this one's
        stream.
        """
        import torch

        if self._changed or self._buffers is not None:
            self._restore()
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()

    def _places_of(self, captured: Captured) -> list[tuple[int, int]]:
        """Address and bytes of the outputs that the graph allocates: of no input's, no weight's, nothing that the
        model keeps.
        """
        storages = [t.untyped_storage() for t in tensors_of(captured.outputs) if t.is_cuda and t.numel()]
        return merge_ranges([(s.data_ptr(), s.nbytes()) for s in storages if s.data_ptr() not in captured.lasting])

    def block(self, calls: int) -> list[float]:
        """Milliseconds of so many calls, the sets in turns."""
        order = [(self._next + i) % len(self._sets) for i in range(calls)]
        self._next = (self._next + calls) % len(self._sets)
        if self.graphs:
            chosen = [self._captured[i] for i in order]
            before: list[Callable[[], Any]] = [lambda c=c: self._prepare(c) for c in chosen]  # type: ignore[misc]
            return self._timed([c.replay for c in chosen], before, 0.0)
        eager: list[Callable[[], Any]] = [lambda i=i: self._once(self._sets[i]) for i in order]  # type: ignore[misc]
        return self._timed(eager, [self._prepare] * calls, self._host_us)

    def _timed(self, calls: list[Callable[[], Any]], before: list[Callable[[], Any]], waiting: float) -> list[float]:
        try:
            with self._settings():
                return timed_block(calls, before, waiting)[0]
        finally:
            self._leave_as_given()

    @property
    def record(self) -> Timing:
        """Returns the measurement of record in the present mode; it is taken now where there is none."""
        if self.graphs not in self._record:
            self.time_anew()
        return summarise_samples(self._record[self.graphs])

    def time_anew(self) -> None:
        """Measures again what candidates are compared with."""
        self.block(2)
        samples = self.block(3)
        left = BUDGET_MS / (statistics.median(samples) + self._flush_ms)
        most = max(MIN_CALLS, min(MAX_CALLS, int(left)))
        while len(samples) < most and not is_settled(summarise_samples(samples), 0.004):
            samples += self.block(min(BLOCK_CALLS, most - len(samples)))
        self._record[self.graphs] = samples

    def release_if_large(self) -> None:
        """Gives the graphs' memory back where it is much; the record stays."""
        import torch

        _, total = torch.cuda.mem_get_info()
        if self.held() > total // HELD_GRAPHS_DIVISOR:
            self.release()

    def held(self) -> int:
        """Returns the bytes of the graphs' outputs."""
        return sum(t.untyped_storage().nbytes() for c in self._captured for t in tensors_of(c.outputs) if t.is_cuda)

    def release(self) -> None:
        """Lets go of the captured graphs and of their outputs."""
        for captured in self._captured:
            captured.release()
        self._captured, self._outputs = [], {}

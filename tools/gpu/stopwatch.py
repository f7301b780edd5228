"""How one call on a GPU is timed: device events, an L2 cache that is written over, a queue that is full before
anything is timed. For candidate and reference alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

MIN_FLUSH_BYTES = 1 << 28
"""Bytes written before every timed call; four times the L2 cache where that is more."""
MAX_TIMED_STEPS = 400
"""Launches and operators of one call that are timed one by one."""
EMPTY_EVENT_PAIRS = 3
CYCLES_PER_MICROSECOND = 2_000
"""Cycles of the GPU, rounded up: it is kept waiting for so long that the host is ahead of it."""
MAX_IDLE_MICROSECONDS = 20_000.0
"""Microseconds of the same."""
LONG_CALL_MS = 2.0
"""A call that takes so many milliseconds is timed once where shorter ones are timed several times."""

_flush_buffers: dict[int, Any] = {}


def flush_l2_cache() -> None:
    """Writes over the L2 cache of the current device, on the current stream."""
    import torch

    device = torch.cuda.current_device()
    if device not in _flush_buffers:
        size = max(MIN_FLUSH_BYTES, 4 * int(torch.cuda.get_device_properties(device).L2_cache_size))
        _flush_buffers[device] = torch.empty(size // 4, dtype=torch.int32, device=f"cuda:{device}")
    _flush_buffers[device].zero_()


def idle_device(microseconds: float) -> None:
    """Lets the device do nothing for so long, on the current stream, while the host fills the queue."""
    import torch

    if microseconds > 0:
        torch.cuda._sleep(int(min(microseconds, MAX_IDLE_MICROSECONDS) * CYCLES_PER_MICROSECOND))


def timed_block(
    calls: Sequence[Callable[[], Any]], before: Sequence[Callable[[], Any]], host_us: float = 0.0
) -> tuple[list[float], float]:
    """Milliseconds of each call, and from the begin of the first preparation to the end of the last call.

    before: what is done ahead of each call and not timed; the cache is written over behind it. host_us: what the host
    takes for a call that is no graph.
    """
    import torch

    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in calls]
    begin = torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for call, prepare, (start, end) in zip(calls, before, events, strict=True):
        prepare()
        flush_l2_cache()
        idle_device(host_us)
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events], begin.elapsed_time(events[-1][1])


def host_time(call: Callable[[], Any], times: int = 5) -> float:
    """Microseconds until a call returns that only fills the queue: the least of a few, after one that is not
    counted; of that one, where a call keeps the device busy for long. The queue holds them all: the device is waited
    for before and after.
    """
    import torch

    torch.cuda.synchronize()
    begun = time.perf_counter()
    call()
    found = [time.perf_counter() - begun]
    torch.cuda.synchronize()
    if (time.perf_counter() - begun) * 1e3 <= LONG_CALL_MS:
        found = []
        for _ in range(times):
            begun = time.perf_counter()
            call()
            found.append(time.perf_counter() - begun)
        torch.cuda.synchronize()
    return min(found) * 1e6


class StepTimes:
    """Device events round chosen steps of one call; it is what the steps are run with as `around`."""

    def __init__(self, chosen: Callable[[Any], bool]) -> None:
        self._chosen = chosen
        self._events: list[tuple[Any, Any, Any]] = []
        self._nothing: list[tuple[Any, Any]] = []
        """Pairs of events with nothing between: what a pair costs."""

    def __call__(self, step: Any) -> AbstractContextManager[None]:
        """A context manager round one step, which records events where the step is chosen and not too many were timed
        before.
        """
        timed = self._chosen(step) and len(self._events) < MAX_TIMED_STEPS
        return self._timed(step) if timed else nullcontext()

    @contextmanager
    def _timed(self, step: Any) -> Iterator[None]:
        import torch

        if len(self._nothing) < EMPTY_EVENT_PAIRS:
            self._nothing.append(_recorded_pair())
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        yield
        end.record()
        self._events.append((step, start, end))

    def told(self) -> list[tuple[Any, float]]:
        """Step and milliseconds, in order, once the device has finished; without what two events cost by themselves."""
        empty = min((start.elapsed_time(end) for start, end in self._nothing), default=0.0)
        return [
            (step, max(start.elapsed_time(end) - empty, 0.0)) for step, start, end in self._events
        ]


def _recorded_pair() -> tuple[Any, Any]:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    end.record()
    return start, end

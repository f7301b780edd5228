"""Times calls on a GPU: device events, a flushed L2 cache, a queue filled before timing starts. For
candidate and reference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

MIN_FLUSH_BYTES = 1 << 28
"""Minimum number of bytes written before every timed call; four times the L2 cache if larger."""
MAX_TIMED_STEPS = 400
"""Maximum number of separately timed launches and operators of a call."""
EMPTY_EVENT_PAIRS = 3
CYCLES_PER_MICROSECOND = 2_000
"""GPU cycles per microsecond, rounded up, to delay the device until the host has filled the queue.
"""
MAX_IDLE_MICROSECONDS = 20_000.0
"""Maximum delay, in microseconds."""
LONG_CALL_MS = 2.0
"""Duration, in milliseconds, above which a call's host time is measured once instead of several
times."""

_flush_buffers: dict[int, Any] = {}


def flush_l2_cache() -> None:
    """Overwrites the L2 cache of the current device, on the current stream."""
    import torch

    device = torch.cuda.current_device()
    if device not in _flush_buffers:
        size = max(MIN_FLUSH_BYTES, 4 * int(torch.cuda.get_device_properties(device).L2_cache_size))
        _flush_buffers[device] = torch.empty(size // 4, dtype=torch.int32, device=f"cuda:{device}")
    _flush_buffers[device].zero_()


def idle_device(microseconds: float) -> None:
    """Delays the device, on the current stream, while the host fills the queue."""
    import torch

    if microseconds > 0:
        torch.cuda._sleep(int(min(microseconds, MAX_IDLE_MICROSECONDS) * CYCLES_PER_MICROSECOND))


def timed_block(
    calls: Sequence[Callable[[], Any]], before: Sequence[Callable[[], Any]], host_us: float = 0.0
) -> tuple[list[float], float]:
    """Returns milliseconds of each call, and from the start of the first preparation to the end of
    the last call.

    before: untimed preparation of each call; the cache is flushed after it. host_us: host time of a
    call outside of graphs, in microseconds.
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
    """Returns microseconds until an asynchronous call returns: the minimum of `times` calls after
    an uncounted first call.

    A call that keeps the device busy for long is measured once. The device is synchronised before
    and after, so that the queue holds all calls.
    """
    import torch

    torch.cuda.synchronize()
    begun = time.perf_counter()
    call()
    durations = [time.perf_counter() - begun]
    torch.cuda.synchronize()
    if (time.perf_counter() - begun) * 1e3 <= LONG_CALL_MS:
        durations = []
        for _ in range(times):
            begun = time.perf_counter()
            call()
            durations.append(time.perf_counter() - begun)
        torch.cuda.synchronize()
    return min(durations) * 1e6


class StepTimes:
    """Device events around chosen steps of a call, for use as `around`."""

    def __init__(self, chosen: Callable[[Any], bool]) -> None:
        self._chosen = chosen
        self._events: list[tuple[Any, Any, Any]] = []
        self._nothing: list[tuple[Any, Any]] = []
        """Pairs of events with nothing between them, to measure the cost of a pair."""

    def __call__(self, step: object) -> AbstractContextManager[None]:
        """Returns a context manager around a step, which records events if the step is chosen, up
        to MAX_TIMED_STEPS."""
        timed = self._chosen(step) and len(self._events) < MAX_TIMED_STEPS
        return self._timed(step) if timed else nullcontext()

    @contextmanager
    def _timed(self, step: object) -> Iterator[None]:
        import torch

        if len(self._nothing) < EMPTY_EVENT_PAIRS:
            self._nothing.append(_recorded_pair())
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        yield
        end.record()
        self._events.append((step, start, end))

    def step_times(self) -> list[tuple[Any, float]]:
        """Returns steps and milliseconds, in order, without the cost of the events. Requires a
        synchronised device."""
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

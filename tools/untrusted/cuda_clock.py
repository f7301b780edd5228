"""Timed and profiled blocks on a GPU. A block calls the candidate once on each input set, every set with contents never seen before.

What the clock needs is taken from torch before the candidate's text is read, so that patching torch changes nothing here; and the judge's own
clock bounds the whole from outside.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

from tools.seeds import seed_everything

FLUSH_BYTES = 1 << 28
_taken: dict[str, Any] = {}


def preload() -> None:
    """Takes the C-level functions and the buffer that evicts the L2 cache."""
    base = torch._C._CudaEventBase
    _taken.update(
        event=base, record=base.record, elapsed=base.elapsed_time, synchronize=torch._C._cuda_synchronize, stream=torch._C._cuda_getCurrentRawStream,
        zero=torch._C.TensorBase.zero_, allocated=torch.cuda.memory_allocated, current=torch.cuda.current_stream, seed=seed_everything, profiled=profiled, cuda_type=torch.autograd.DeviceType.CUDA,
    )  # fmt: skip


def _flush() -> torch.Tensor:
    if "flush" not in _taken:
        _taken["flush"] = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    return _taken["flush"]


class Block:
    """One timed block: armed, run, told. Between "go" and "done" nothing happens but the calls.

    Before each call the L2 cache is written over (as triton.testing.do_bench does), which also keeps the queue longer than the host is slow.
    """

    def __init__(self, model: Any, sets: list[list[Any]], rng: int) -> None:
        self._model, self._sets = model, sets
        self._events = [(_taken["event"](enable_timing=True), _taken["event"](enable_timing=True)) for _ in sets]
        self._flush = _flush()
        self._made: list[Any] = []
        self._before = _taken["allocated"]()
        _taken["seed"](rng)
        _taken["synchronize"]()

    def run(self) -> None:
        record, zero, stream = _taken["record"], _taken["zero"], _taken["current"]()
        with torch.no_grad():
            for inputs, (start, end) in zip(self._sets, self._events, strict=True):
                zero(self._flush)
                record(start, stream)
                made = self._model(*inputs)
                record(end, stream)
                self._made.append(made)
        _taken["synchronize"]()

    def told(self) -> tuple[list[float], list[list[Any]], int]:
        """Milliseconds of each call by device events, the outputs of each, bytes allocated by the calls."""
        from tools.compare import flatten

        grown = max(_taken["allocated"]() - self._before, 0)
        return [_taken["elapsed"](a, b) for a, b in self._events], [flatten(o) for o in self._made], grown


def kernels(model: Any, sets: list[list[Any]]) -> dict[str, dict[str, float]]:
    """Every GPU activity of the calls by exact name, from CUPTI: milliseconds in all and how many. Copies and fills too."""
    with torch.no_grad():
        model(*sets[0])  # memory that is touched for the first time is slow, and no kernel's fault
        _taken["synchronize"]()
    with _taken["profiled"]() as results, torch.no_grad():
        for inputs in sets:
            kept = model(*inputs)
        _taken["synchronize"]()
    del kept
    found: dict[str, dict[str, float]] = defaultdict(lambda: {"ms": 0.0, "count": 0})
    for event in results[0].events():
        if event.device_type() == _taken["cuda_type"] and event.duration_ns() >= 0:
            entry = found[event.name()]
            entry["ms"] += event.duration_ns() / 1e6
            entry["count"] += 1
    return dict(found)


@contextlib.contextmanager
def profiled() -> Iterator[list[Any]]:
    """CUPTI on inside; afterwards the list holds kineto's results. Below torch.profiler, which pulls in dynamo (seconds)."""
    from torch.autograd.profiler import profile

    asked = profile(use_cpu=False, use_device="cuda", use_kineto=True)
    config = asked.config()
    results: list[Any] = []
    torch.autograd._prepare_profiler(config, asked.kineto_activities)
    torch.autograd._enable_profiler(config, asked.kineto_activities)
    try:
        yield results
    finally:
        results.append(torch.autograd._disable_profiler())


def warm_up() -> None:
    """CUPTI's first use costs a second: in the spare process, before there is a candidate."""
    with profiled():
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()

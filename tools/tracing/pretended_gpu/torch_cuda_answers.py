"""Replaces torch.cuda's answers without a GPU: properties of the target, inactive streams and
events."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

CUDA = torch.device("cuda", 0)


class _Nothing:
    """An inactive stream or event."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: None

    def query(self) -> bool:
        """Returns True: there is no pending work."""
        return True

    def elapsed_time(self, other: object) -> float:
        """Returns a fixed time in milliseconds, since nothing runs."""
        return 1.0


def install(
    capability: tuple[int, int] = (9, 0), multiprocessors: int = 132, shared: int = 232448
) -> None:
    """Replaces torch.cuda's functions, once per process, before the candidate's source is read."""
    properties = types.SimpleNamespace(
        name="offline", major=capability[0], minor=capability[1], multi_processor_count=multiprocessors,
        total_memory=80 << 30, warp_size=32, max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536, shared_memory_per_block_optin=shared, shared_memory_per_multiprocessor=shared,
        shared_memory_per_block=49152, L2_cache_size=50 << 20, gcnArchName="",
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_capability": capability,
        "get_device_properties": properties, "get_device_name": "offline",
        "synchronize": None, "init": None, "set_device": None, "empty_cache": None, "is_initialized": True,
        "is_current_stream_capturing": False, "memory_allocated": 0, "max_memory_allocated": 0,
        "reset_peak_memory_stats": None, "mem_get_info": (80 << 30, 80 << 30), "is_bf16_supported": True,
        "manual_seed": None, "manual_seed_all": None,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *args, answer=answer, **kwargs: answer)
    for name in ("Stream", "Event", "device", "device_of", "stream", "StreamContext"):
        setattr(torch.cuda, name, _Nothing)
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark", "range"):
        setattr(torch.cuda.nvtx, name, _Nothing)
    for name in ("current_stream", "default_stream"):
        setattr(torch.cuda, name, lambda *args, **kwargs: _Nothing())

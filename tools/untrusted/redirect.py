"""Host code that was written for a GPU, run on CPU (or fake) tensors: `.cuda()`, `device="cuda"`, `is_cuda` asserts, torch.cuda's questions."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

CUDA = torch.device("cuda", 0)
_TENSOR: Any = torch.Tensor
_GETTERS = {_TENSOR.is_cuda.__get__: True, _TENSOR.is_cpu.__get__: False, torch.Tensor.get_device: 0}
_READS = {
    torch.Tensor.tolist: "tolist", torch.Tensor.numpy: "numpy", torch.Tensor.__array__: "__array__", torch.Tensor.__dlpack__: "__dlpack__",
    torch.Tensor.untyped_storage: "untyped_storage", torch.Tensor.storage: "storage",
}  # fmt: skip
_DEVICE = torch.Tensor.device.__get__
"""Equal to what torch hands over, and never the same object."""


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


class OnCpu(TorchFunctionMode):
    """Round the candidate's own code: a tensor says that it is on cuda:0, and whatever is asked of cuda:0 is done on the CPU.

    Reads that no operator shows are told to `read`, which gives a context in which contents are real; what comes out is a copy.
    """

    def __init__(self, read: Callable[[str, Any], Any] | None = None) -> None:
        super().__init__()
        self._read = read or (lambda name, tensor: contextlib.nullcontext())

    def __torch_function__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _GETTERS:
            return _GETTERS[func]
        if func == _DEVICE:
            real = func(*args, **kwargs)
            return CUDA if real.type == "cpu" else real
        if func is torch.device:
            return func(*args, **kwargs)
        if func is torch.Tensor.cuda:
            return args[0]
        if func in _READS:
            with self._read(_READS[func], args[0]):
                seen = func(*args, **kwargs)
                return seen.copy() if isinstance(seen, list | np.ndarray) else seen
        args = tuple(torch.device("cpu") if _is_cuda(a) else a for a in args)
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = torch.device("cpu")
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return func(*args, **kwargs)


class _Nothing:
    """A stream or an event on a device that is not there."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: None

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 1.0


def install(capability: tuple[int, int] = (9, 0), multiprocessors: int = 132, shared: int = 232448) -> None:
    """torch.cuda answers as a GPU of this kind would. Once a process, before the candidate's text is read."""
    properties = types.SimpleNamespace(
        name="offline", major=capability[0], minor=capability[1], multi_processor_count=multiprocessors, total_memory=80 << 30, warp_size=32, max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536, shared_memory_per_block_optin=shared, shared_memory_per_multiprocessor=shared, shared_memory_per_block=49152, L2_cache_size=50 << 20, gcnArchName="",
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_capability": capability, "get_device_properties": properties, "get_device_name": "offline",
        "synchronize": None, "init": None, "set_device": None, "empty_cache": None, "is_initialized": True, "is_current_stream_capturing": False, "memory_allocated": 0, "max_memory_allocated": 0,
        "reset_peak_memory_stats": None, "mem_get_info": (80 << 30, 80 << 30), "is_bf16_supported": True, "manual_seed": None, "manual_seed_all": None,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *args, answer=answer, **kwargs: answer)
    for name in ("Stream", "Event", "device", "device_of", "stream", "StreamContext"):
        setattr(torch.cuda, name, _Nothing)
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark", "range"):
        setattr(torch.cuda.nvtx, name, _Nothing)
    torch.cuda.current_stream = torch.cuda.default_stream = lambda *args, **kwargs: _Nothing()  # type: ignore[assignment]


def outside() -> Any:
    """Where tensors tell their real device again: round a launch and round our own looks at outputs."""
    return torch._C.DisableTorchFunction()

"""Runs a text that names a CUDA device (`device="cuda"`, `.cuda()`, `.to("cuda:0")`) on another device.

Most texts for PyTorch are written for a machine with one GPU. The judge decides where a reference runs, so every CUDA
device in its text stands for the judge's device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def cuda_mapped_to(device: str, source: str) -> AbstractContextManager[Any]:
    """A context in which torch's functions take every CUDA device for `device`.

    Nothing is done where the text `source` does not mention CUDA: a mode costs a microsecond at each call of torch.
    """
    return _mode_class()(device) if "cuda" in source else nullcontext()


def map_cuda_of(module: dict[str, Any], device: str, source: str) -> None:
    """Has the functions of a problem and the constructor of its Model take every CUDA device for `device`.

    module: the executed text `source`. The forward pass is left as it is.
    """
    if "cuda" not in source:
        return

    def mapped(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with cuda_mapped_to(device, source):
                return function(*args, **kwargs)

        return call

    for name in ("get_inputs", "get_init_inputs"):
        if name in module:
            module[name] = mapped(module[name])
    if isinstance(module.get("Model"), type):
        module["Model"].__init__ = mapped(module["Model"].__init__)


@functools.cache
def _mode_class() -> Any:
    """The class of the function modes, made at first use: torch takes seconds to import."""
    import torch
    from torch.overrides import TorchFunctionMode

    class CudaMapped(TorchFunctionMode):
        def __init__(self, device: str) -> None:
            super().__init__()
            self._device = torch.device(device)

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.Tensor.cuda:
                return args[0].to(self._device)
            positional = [self._device if _is_cuda(value) else value for value in args]
            named = {
                name: self._device if _is_cuda(value) else value
                for name, value in (kwargs or {}).items()
            }
            return func(*positional, **named)

    return CudaMapped


def _is_cuda(value: str | torch.device | object) -> bool:
    """Whether an argument names a CUDA device: `"cuda"`, `"cuda:1"` or a torch.device."""
    if isinstance(value, str):
        return value == "cuda" or value.startswith("cuda:")
    import torch

    return isinstance(value, torch.device) and value.type == "cuda"

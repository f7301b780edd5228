"""CPU tensors that say they are on cuda:0, for host code that reads values: `.item()`, `.tolist()`, `if x.any()`.

What a kernel would have written is never written: it reads as zero.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

from tools.dispatch import without_dynamo
from tools.untrusted.pretend_gpu import CUDA, FirstDevice

_UNWRITTEN = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
CPU = torch.device("cpu")


@without_dynamo
class StandIn(torch.Tensor):
    """Holds a CPU tensor in `held`; device, is_cuda and get_device are those of cuda:0."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, real: torch.Tensor) -> StandIn:
        made = torch.Tensor._make_wrapper_subclass(
            cls, real.size(), strides=real.stride(), storage_offset=real.storage_offset(), dtype=real.dtype, device=CUDA
        )
        made.held = real
        return made

    def data_ptr(self) -> int:
        """As on a GPU: storages begin at multiples of 256 bytes (a CPU's at multiples of 64)."""
        return (self.held.untyped_storage().data_ptr() << 2) + int(self.held.storage_offset()) * self.dtype.itemsize

    def tolist(self) -> Any:
        return torch.ops.aten._to_copy.default(self, device=CPU).tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"StandIn({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _run(func, args, kwargs or {})


@without_dynamo
class StandIns(TorchDispatchMode):
    """Makes what is asked for on cuda."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operator on the CPU tensors; its results stand in where the arguments or the asked-for device are on cuda."""
    asked = kwargs.get("device")
    pretend = any(isinstance(v, StandIn) for v in tree_flatten((args, kwargs))[0])
    if asked is not None:
        pretend = torch.device(asked).type == "cuda"
        kwargs = {**kwargs, "device": CPU if pretend else asked}
    real_args, real_kwargs = tree_map(_real, args), tree_map(_real, kwargs)
    made = func(*real_args, **real_kwargs)
    if func.overloadpacket.__name__ in _UNWRITTEN:
        made.zero_()
    if not pretend:
        return made
    made = tree_map(lambda v: StandIn(v) if isinstance(v, torch.Tensor) else v, made)
    return return_and_correct_aliasing(func, args, kwargs, made)


def _real(value: Any) -> Any:
    return value.held if isinstance(value, StandIn) else value


@contextlib.contextmanager
def standing_in() -> Iterator[None]:
    """Inside, tensors asked for on cuda are CPU tensors that say so."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with StandIns(), FirstDevice():
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


def drawn(spec: dict[str, Any], dtype: torch.dtype) -> StandIn:
    """A tensor with values: the problem's own where they are known, else normal, or integers in [low, high)."""
    shape, stride = spec["shape"], spec["stride"]
    made = torch.empty_strided(shape, stride, dtype=dtype)
    if "values" in spec:
        made.copy_(torch.tensor(spec["values"], dtype=dtype).reshape(shape))
    elif dtype is torch.bool:
        made.random_(0, 2)
    elif dtype.is_floating_point or dtype.is_complex:
        made.copy_(torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float32))
    else:
        low = int(spec.get("low") or 0)
        made.random_(low, max(int(spec.get("high") or 2), low + 1))
    return StandIn(made)

"""The same forward pass in float64, random numbers and all: what a model draws or makes while it runs is drawn in its
own precision first, then widened.

A dropout mask drawn in float64 would be another mask, and eager's "error" against it would excuse any answer.
"""

from __future__ import annotations

from typing import Any


def widen_attributes(model: Any) -> None:
    """Floating tensors that modules hold as plain attributes: an initial state that is no buffer."""
    import torch

    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                setattr(module, name, value.double())


def drawing_as_single() -> Any:
    """A mode in which tensors that a forward pass makes of nothing come as float32 and are widened, and dropout
    takes float32's mask.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class Widening(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = dict(kwargs or {})
            given = [a for a in [*args, *named.values()] if isinstance(a, torch.Tensor)]
            name = getattr(func, "__name__", "")
            if name in ("dropout", "dropout1d", "dropout2d", "dropout3d") and given and given[0].dtype == torch.float64:
                return given[0] * _mask(func, given[0], args, named).double()
            if name.endswith("_like") and given and given[0].dtype == torch.float64 and "dtype" not in named:
                return func(args[0].float(), *args[1:], **named).double()
            out = func(*args, **named)
            made = isinstance(out, torch.Tensor) and not given and out.dtype == torch.float32
            return out.double() if made else out

    return Widening()


def _mask(func: Any, tensor: Any, args: Any, named: dict[str, Any]) -> Any:
    import torch

    rest = {k: v for k, v in named.items() if k not in ("input", "inplace")}
    positional = [a for a in args[1:3] if not isinstance(a, torch.Tensor)]
    return func(torch.ones_like(tensor, dtype=torch.float32), *positional, **rest)

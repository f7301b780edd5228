"""Parameters created in forward (`layer.weight = nn.Parameter(weight)`), and conversions such as
`layers.half()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def parameters_of_values() -> None:
    """Lets a tensor of a functional graph be a parameter; torch asks for a memory address, which
    symbols lack.
    """
    import torch

    plain = torch.nn.Parameter.__new__

    def new_parameter(
        cls: Any, data: torch.Tensor | None = None, requires_grad: bool = True
    ) -> Any:
        if data is None or not torch._is_functional_tensor(data):
            return plain(cls, data, requires_grad)
        value = data.detach()
        value._is_param = True
        return value

    torch.nn.Parameter.__new__ = new_parameter  # type: ignore[method-assign]


def converted_modules() -> None:
    """Lets modules without memory be converted, by replacing their parameters instead of their
    contents.
    """
    import torch

    def converted(
        self: Any, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
    ) -> Any:
        converted_by_id = fn.__dict__.setdefault(
            "converted", {}
        )  # a parameter of two layers stays one
        for child in self.children() if recurse else ():
            child._apply(fn)
        for key, parameter in self._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in converted_by_id:
                data = fn(parameter.detach())
                converted_by_id[id(parameter)] = (
                    parameter,
                    torch.nn.Parameter(data, parameter.requires_grad),
                )
            self._parameters[key] = converted_by_id[id(parameter)][1]
        for key, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[key] = fn(buffer)
        return self

    torch.nn.Module._apply = converted  # type: ignore[method-assign]

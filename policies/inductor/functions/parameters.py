"""Parameters that forward makes of tensors (`layer.weight = nn.Parameter(weight)`)."""

from __future__ import annotations

from typing import Any


def parameters_of_values() -> None:
    """Lets a tensor of a functional graph be a parameter: torch's own asks where its memory begins, which symbols do
    not have.
    """
    import torch

    plain = torch.nn.Parameter.__new__

    def made(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if data is None or not torch._is_functional_tensor(data):
            return plain(cls, data, requires_grad)
        value = data.detach()
        value._is_param = True
        return value

    torch.nn.Parameter.__new__ = made  # type: ignore[method-assign]

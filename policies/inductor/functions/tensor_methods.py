"""Methods of tensors that torch's own cannot do with symbolic sizes or in a functional graph."""

from __future__ import annotations

from typing import Any

from kernelwright.policies.inductor.refusing import Refused


def tensor_methods() -> list[tuple[str, Any]]:
    """Name and function of each."""
    return [("__deepcopy__", deep_copy), ("fill_diagonal_", fill_diagonal_)]


def deep_copy(x: Any, memo: dict[int, Any]) -> Any:
    """A copy for `copy.deepcopy`, with which networks repeat a layer; torch's own asks for the memory of the tensor."""
    import torch

    if id(x) not in memo:
        made: Any = x.detach().clone()
        if isinstance(x, torch.nn.Parameter):
            made = torch.nn.Parameter(made, x.requires_grad)
        memo[id(x)] = made
    return memo[id(x)]


def fill_diagonal_(x: Any, fill_value: Any, wrap: bool = False) -> Any:
    """Writes a number on the diagonal. Raises Refused where a diagonal of a tall matrix goes on at its top."""
    import torch

    if wrap and x.dim() == 2:
        raise Refused("fill_diagonal_ with wrap=True has no kernel: without it the diagonal ends at the last column")
    axes = [torch.arange(n, device=x.device) for n in x.shape]
    here = axes[-1] == axes[-2].unsqueeze(-1)
    for place, axis in enumerate(axes[-3::-1], start=2):
        here = here & (axis.reshape(-1, *[1] * place) == axes[-1])
    return x.copy_(x.masked_fill(here, fill_value))

"""How a candidate's forward is called at one size: as KernelBench calls it, or as users of a module do besides.

A module is called while gradients are recorded, on leaves that require them, on parameters, on views of other tensors.
A candidate that does something else there gets a trace of that, which is replayed and judged like every other. One that
raises there is traced as KernelBench calls it: refusing gradients is no fault.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class Surroundings(StrEnum):
    """How forward is called."""

    PLAIN = "plain"
    """Without gradients, on tensors of their own."""
    PARAMETERS = "parameters"
    """While gradients are recorded, on parameters."""
    VIEWS = "views"
    """While gradients are recorded, on views of tensors that require gradients."""


IN_TURNS = (Surroundings.PLAIN, Surroundings.PARAMETERS, Surroundings.PLAIN, Surroundings.VIEWS)
"""What the sizes beside the base take turns with."""


def as_called(surroundings: Surroundings, tensor: torch.Tensor) -> Any:
    """Returns a tensor of the same memory as forward is given it. Whole numbers require no gradients."""
    import torch

    differentiable = tensor.is_floating_point() or tensor.is_complex()
    if surroundings is Surroundings.PARAMETERS:
        return torch.nn.Parameter(tensor, requires_grad=differentiable)
    if surroundings is Surroundings.VIEWS:
        return tensor.requires_grad_(differentiable).view_as(tensor)
    return tensor

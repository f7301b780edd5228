"""Changes of a module after it was built: as users copy it, load weights into it, and set its mode."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch

from kernelwright.tools.trace.trace import OF_WEIGHTS, Change
from kernelwright.tools.tracing import recorded
from kernelwright.tools.tracing.pretended_gpu import fake_gpu as pretend_gpu


def rearranged(model: Any, changes: Collection[Change]) -> tuple[Any, dict[str, torch.Tensor]]:
    """Returns the module with these changes, and the tensors by name in whose places the judge's weights lie.

    After a load these are the tensors of the checkpoint: a module that does not take them over computes with weights
    that nobody loaded. Raises what the module raises.
    """
    if not isinstance(model, torch.nn.Module):
        return model, {}
    if Change.COPIED in changes:
        model = copy.deepcopy(model)
    if Change.OTHER_MODE in changes:
        model.train(not model.training)
    state = recorded.state_tensors(model)
    if OF_WEIGHTS & set(changes):
        state = _load(model, state, changes)
    if Change.FROZEN in changes:
        model.requires_grad_(False)
    return model, state


def _load(
    model: torch.nn.Module, state: dict[str, torch.Tensor], changes: Collection[Change]
) -> dict[str, Any]:
    names = list(model.state_dict())
    fresh = {name: _like(state[name]) for name in names if name in state}
    given = {name: _strided(t) for name, t in fresh.items()} if Change.STRIDED in changes else fresh
    if (
        Change.STRIDED in changes
    ):  # a buffer that a call updates has to lie where the judge looks for it
        given |= {
            name: fresh[name] for name in fresh if not isinstance(state[name], torch.nn.Parameter)
        }
    model.load_state_dict(dict(given), assign=Change.LOADED not in changes)
    return state | fresh


def _like(tensor: torch.Tensor) -> torch.Tensor:
    fresh = pretend_gpu.fake_tensor(list(tensor.shape), list(tensor.stride()), tensor.dtype)
    return (
        torch.nn.Parameter(fresh, tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter)
        else fresh
    )


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the values of a tensor with its last dimension but one as the fastest; others as they are."""
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2) if tensor.dim() >= 2 else tensor

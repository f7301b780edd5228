"""Changes a module after its construction, as users do: copies it, loads weights, sets its mode."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch

from kernelwright.tools.trace.trace import OF_WEIGHTS, Change
from kernelwright.tools.tracing import recorded
from kernelwright.tools.tracing.pretended_gpu import fake_gpu as pretend_gpu


def rearranged(model: Any, changes: Collection[Change]) -> tuple[Any, dict[str, torch.Tensor]]:
    """Returns the changed module, and the tensors by name that the judge's weights replace.

    After a load these are the checkpoint's tensors: a module that does not adopt them computes with
    weights that were never loaded. Raises the module's errors.
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
    loaded = (
        {name: _strided(t) for name, t in fresh.items()} if Change.STRIDED in changes else fresh
    )
    if (
        Change.STRIDED in changes
    ):  # a buffer that a call updates has to lie where the judge looks for it
        loaded |= {
            name: fresh[name] for name in fresh if not isinstance(state[name], torch.nn.Parameter)
        }
    model.load_state_dict(dict(loaded), assign=Change.LOADED not in changes)
    return state | fresh


def _like(tensor: torch.Tensor) -> torch.Tensor:
    fresh = pretend_gpu.fake_tensor(list(tensor.shape), list(tensor.stride()), tensor.dtype)
    return (
        torch.nn.Parameter(fresh, tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter)
        else fresh
    )


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of equal values whose last but one dimension is contiguous; unchanged below
    two dimensions."""
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2) if tensor.dim() >= 2 else tensor

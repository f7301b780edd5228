"""Copies of models and inputs in float64."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from kernelwright.tools.references.arithmetic import widen_attributes

if TYPE_CHECKING:
    import torch

WIDENED = "_made_by_double"
"""Attribute of a model which was widened to float64."""


def model_in_float64(model: torch.nn.Module) -> Any:
    """Returns a copy of the model in float64. `Reference.run` supplies the random numbers that the
    model draws."""
    import copy

    import torch

    if _is_bare(model):
        return _copy_of_bare(model)
    held = [
        v
        for module in model.modules()
        for v in vars(module).values()
        if isinstance(v, torch.Tensor)
    ]
    computed = {
        id(v): v.detach().clone() for v in held if not v.is_leaf
    }  # torch copies what is no leaf not at all
    wide = copy.deepcopy(model, computed).double()
    widen_attributes(wide)
    setattr(wide, WIDENED, True)
    return wide


_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def _is_bare(model: torch.nn.Module) -> bool:
    """Returns True for a module of plain values, which is copied like any object."""
    held = (v for v in vars(model).values() if type(v) not in _PLAIN)
    own_copying = any(
        hasattr(type(model), name) for name in ("__deepcopy__", "__copy__", "__slots__")
    )
    return not own_copying and all(type(v) in (dict, set, OrderedDict) and not v for v in held)


def _copy_of_bare(model: torch.nn.Module) -> Any:
    wide = object.__new__(type(model))
    vars(wide).update(
        {name: v if type(v) in _PLAIN else type(v)() for name, v in vars(model).items()}
    )
    setattr(wide, WIDENED, True)
    return wide


def inputs_in_float64(inputs: list[Any]) -> list[Any]:
    """Converts floating inputs to float64; integers, booleans and other values are unchanged."""
    import torch

    return [
        v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in inputs
    ]

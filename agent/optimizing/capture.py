"""Captures the calls of a model's modules, and exports a module as a graph of aten operators."""

from __future__ import annotations

import contextlib
import inspect
import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

log = logging.getLogger(__name__)


@dataclass
class ModuleCall:
    """First call of a module while the model ran."""

    path: str
    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    count: int = 1
    """Number of calls while the model ran once."""


def captured_calls(model: torch.nn.Module, inputs: Sequence[Any]) -> dict[str, ModuleCall]:
    """Runs the model once without gradients; returns the calls of its modules by path."""
    import torch

    calls: dict[str, ModuleCall] = {}

    def hook_of(path: str) -> Any:
        def hook(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if path in calls:
                calls[path].count += 1
            else:
                calls[path] = ModuleCall(path, module, args, dict(kwargs))

        return hook

    handles = []
    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(hook_of(path), with_kwargs=True))
    try:
        with torch.no_grad():
            call_model(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def call_model(model: torch.nn.Module, inputs: Sequence[Any] | dict[str, Any]) -> Any:
    """Calls a model with a list of arguments, or with arguments by name."""
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def exported_module(call: ModuleCall) -> ExportedProgram | None:
    """Returns the graph of a module with varying sizes; None if there is none.

    A module has no graph here if the graph depends on values, or if its outputs are other types
    than tensors in lists, tuples and dictionaries. Its children are regions instead.
    """
    import torch

    args, kwargs = _distinct((call.args, call.kwargs))
    for varied in (_varied_shapes(call), None):
        try:
            with torch.no_grad(), _without_warnings():
                program = torch.export.export(
                    call.module, args, kwargs, dynamic_shapes=varied, strict=False
                )
                # Without decompositions: only writes in place become new values.
                return program.run_decompositions({})
        # Exporting runs the module's own code, which raises whatever it likes.
        except Exception as error:
            log.info("%s is not exported: %s", call.path, str(error).partition("\n")[0])
    return None


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Silences torch.export, which warns about every fixed size and about its own code."""
    exporting = logging.getLogger("torch._export")
    level = exporting.level
    exporting.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        exporting.setLevel(level)


def _distinct(arguments: Any) -> Any:
    """Returns the arguments with repeated tensors cloned: an export would turn equal tensors into a
    single input.
    """
    import torch
    from torch.utils import _pytree

    visited: set[int] = set()

    def distinct(value: object) -> Any:
        if isinstance(value, torch.Tensor) and id(value) in visited:
            return value.clone()
        visited.add(id(value))
        return value

    return _pytree.tree_map(distinct, arguments)


def _varied_shapes(call: ModuleCall) -> dict[str, Any] | None:
    """Marks every extent of the arguments as varying; torch finds those with a fixed value."""
    import torch
    from torch.utils import _pytree

    def extents(value: object) -> dict[int, Any] | None:
        if not isinstance(value, torch.Tensor):
            return None
        return dict.fromkeys(range(value.dim()), torch.export.Dim.AUTO)

    bound = inspect.signature(call.module.forward).bind(*call.args, **call.kwargs)
    return {name: _pytree.tree_map(extents, value) for name, value in bound.arguments.items()}

"""Turns live Python objects into problems: a module, a class of modules or a function, with
example inputs.

    reference_of_value(Block(64), [torch.randn(4, 64)])

The text contains the object's source with its dependencies, or imports the object from an
installed package. The constructor draws the weights, as in every problem: a kernel must be
correct for any weights of these shapes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.agent.problems.entry_points.entry_problems import completed_text, text_of_object
from kernelwright.agent.problems.entry_points.example_inputs import read_examples
from kernelwright.agent.problems.entry_points.installed_objects import InstalledObject
from kernelwright.agent.problems.entry_points.object_sources import ObjectSources, is_installed
from kernelwright.agent.problems.entry_points.option_values import NamedSizes, RebuiltArguments
from kernelwright.agent.problems.entry_points.rebuilding import expression_of, recovered_arguments
from kernelwright.tools.problem import ProblemError

if TYPE_CHECKING:
    import torch


def reference_of_value(
    value: object,
    inputs: Sequence[Any] | Mapping[str, Any] | torch.Tensor,
    init: Sequence[Any] | Mapping[str, Any] | None,
) -> str:
    """Returns the completed reference of an object.

    value: a module, a class of modules or a function. inputs: example inputs, positional or by
    name. init: arguments of the constructor; None reads them from attributes of the module.
    Raises ProblemError with advice.
    """
    import torch

    value = _unwrapped(value)
    sources = ObjectSources()
    built = RebuiltArguments()
    if isinstance(value, torch.nn.Module):
        arguments = recovered_arguments(value) if init is None else _call_of(init)
        built = _expressions(arguments, sources)
        built.preparation = _preparation(value)
        kind: Any = type(value)
    else:
        built = _expressions(_call_of(init or ()), sources)
        kind = value
    name = getattr(kind, "__name__", "")
    if not name or not callable(kind):
        raise ProblemError(
            f"{type(value).__name__} is no problem: give a module, a class of modules or a function"
        )
    sizes = NamedSizes(reserved_names={name, *sources.names})
    input_arguments = read_examples(inputs, sizes)
    if is_installed(kind):
        entry = InstalledObject(
            sources.home_of(kind), kind.__qualname__ if isinstance(kind, type) else name, kind
        )
        return text_of_object(
            entry, f"{entry.module}:{entry.name}", built, input_arguments, sizes, sources.text()
        )
    sources.add(kind)
    return completed_text(sources.text(), name, built, input_arguments, sizes)


def _unwrapped(value: object) -> Any:
    """Returns the module inside `torch.compile` or a data-parallel wrapper."""
    import torch

    while isinstance(value, torch.nn.Module):
        inner = getattr(value, "_orig_mod", None)
        if isinstance(value, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
            inner = value.module
        if inner is None:
            return value
        value = inner
    if isinstance(value, functools.partial):
        raise ProblemError(
            "a functools.partial is no problem: write a function that calls it, and give that"
        )
    return inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value


def _call_of(init: Sequence[Any] | Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    return ([], dict(init)) if isinstance(init, Mapping) else (list(init), {})


def _expressions(
    call: tuple[list[Any], dict[str, Any]], sources: ObjectSources
) -> RebuiltArguments:
    args, named = call
    arguments = RebuiltArguments([expression_of(value, sources) for value in args])
    for name, value in named.items():
        arguments.named[name] = expression_of(value, sources)
    return arguments


def _preparation(module: torch.nn.Module) -> str:
    """Returns the calls that convert a new module to the dtype and mode of `module`."""
    dtypes = {str(p.dtype) for p in module.parameters() if p.is_floating_point()}
    conversion = f".to({dtypes.pop()})" if len(dtypes) == 1 and dtypes != {"torch.float32"} else ""
    return conversion + ("" if module.training else ".eval()")

"""Recovers the constructor call of a live module: arguments are read from attributes with the
parameters' names.

    nn.Conv2d(8, 16, 3, padding=1)  ->  Conv2d(in_channels=8, out_channels=16, kernel_size=(3, 3), ...)

Recovered arguments are verified: a module built with them must have equal parameters and buffers.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kernelwright.tools.problem import ProblemError

if TYPE_CHECKING:
    import torch

    from kernelwright.agent.problems.entry_points.object_sources import ObjectSources

Call = tuple[list[Any], dict[str, Any]]
REBUILDING_ADVICE = "give the constructor's arguments too, as init={'width': 64}"
MAX_REBUILD_TRIALS = 300
"""Maximum number of trial modules (built without data) for finding constructor arguments."""
DEVICE_PARAMETERS = frozenset({"device", "dtype"})
"""Parameters of torch layers for device and dtype of the weights, which the judge decides."""


def recovered_arguments(module: torch.nn.Module) -> Call:
    """Returns positional and named arguments that rebuild a module.

    Raises ProblemError if none are found.
    """
    import torch

    if type(module) is torch.nn.Sequential:
        children = dict(module.named_children())
        numbered = list(children) == [str(index) for index in range(len(children))]
        return (list(children.values()), {}) if numbered else ([_Ordered(children)], {})
    if type(module) is torch.nn.ModuleList:
        return [list(module)], {}
    named, unknown = _stored_arguments(module)
    for choice in _choices(module, unknown):
        if _builds_alike(module, {**named, **choice}):
            return [], {**named, **choice}
    missing = [p.name for p in unknown if p.default is p.empty]
    reason = f"{', '.join(missing)} is no attribute" if missing else "another one has other weights"
    raise ProblemError(
        f"how this {type(module).__name__} was built cannot be read ({reason}): {REBUILDING_ADVICE}"
    )


def _stored_arguments(module: torch.nn.Module) -> tuple[dict[str, Any], list[inspect.Parameter]]:
    """Returns the arguments stored as attributes (without defaults), and the remaining
    parameters.
    """
    named: dict[str, Any] = {}
    unknown: list[inspect.Parameter] = []
    for parameter in inspect.signature(type(module)).parameters.values():
        if (
            parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            or parameter.name in DEVICE_PARAMETERS
        ):
            continue
        is_stored, value = _attribute(module, parameter)
        if not is_stored:
            unknown.append(parameter)
        elif parameter.default is parameter.empty or not _is_equal(value, parameter.default):
            named[parameter.name] = value
    return named, unknown


def _choices(module: torch.nn.Module, unknown: list[inspect.Parameter]) -> Iterator[dict[str, int]]:
    """Yields candidate values for parameters without attributes: extents of weights and integers
    of submodules.

    Parameters without default are tried first, then also integer parameters with a default.
    """
    required = [p.name for p in unknown if p.default is p.empty]
    optional = [p.name for p in unknown if type(p.default) is int]
    numbers: set[int] = set()
    for shape in _weights(module).values():
        numbers.update(shape)
    for child in module.modules():
        numbers.update(value for value in vars(child).values() if type(value) is int)
    # Large extents first: they are more often widths than counts.
    ordered = sorted(numbers, reverse=True)

    def choices() -> Iterator[dict[str, int]]:
        for names in [required, [*required, *optional]] if optional else [required]:
            for values in itertools.product(ordered, repeat=len(names)):
                yield dict(zip(names, values, strict=True))

    return itertools.islice(choices(), MAX_REBUILD_TRIALS)


class _Ordered(dict[str, Any]):
    """Named children of a Sequential."""


def _attribute(module: torch.nn.Module, parameter: inspect.Parameter) -> tuple[bool, Any]:
    """Returns whether a module stores a parameter, and its value.

    A tensor counts as True, as for `bias=True`.
    """
    import torch

    for name in (parameter.name, f"_{parameter.name}"):
        if hasattr(module, name):
            value = getattr(module, name)
            # `bias=True` is stored as a weight, `bias=False` as None.
            if isinstance(parameter.default, bool) and not isinstance(value, bool):
                is_weight = value is None or isinstance(value, torch.Tensor)
                return (True, value is not None) if is_weight else (False, None)
            return not isinstance(value, torch.Tensor), value
    return False, None


def _is_equal(value: object, default: object) -> bool:
    return type(value) is type(default) and bool(value == default)


def _builds_alike(module: torch.nn.Module, named: dict[str, Any]) -> bool:
    """Returns whether a module built with these arguments has equal weights and plain attributes."""
    import torch

    try:
        # The meta device allocates no memory, however large the module is.
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            other = type(module)(**named)
    except Exception:
        return False
    return _weights(other) == _weights(module) and _plain_attributes(other) == _plain_attributes(
        module
    )


def _plain_attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Returns the numbers and texts stored in the module and its children, by qualified name."""
    attributes: dict[str, Any] = {}
    for name, child in module.named_modules():
        for key, value in vars(child).items():
            is_public = key != "training" and not key.startswith("_")
            if is_public and isinstance(value, bool | int | float | str):
                attributes[f"{name}.{key}"] = value
    return attributes


def _weights(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {name: tuple(tensor.shape) for name, tensor in tensors}


def expression_of(value: object, sources: ObjectSources) -> str:
    """Returns an expression for a value and adds its dependencies to `sources`.

    Raises ProblemError if impossible.
    """
    import torch

    if value is None or isinstance(value, bool | int | float | str | torch.dtype):
        return repr(value)
    if isinstance(value, _Ordered):
        sources.add(__import__("collections").OrderedDict)
        entries = [f"({name!r}, {expression_of(child, sources)})" for name, child in value.items()]
        return f"OrderedDict([{', '.join(entries)}])"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {expression_of(v, sources)}' for k, v in value.items())}}}"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"({''.join(f'{expression_of(item, sources)}, ' for item in value)})"
    if isinstance(value, list):
        return f"[{', '.join(expression_of(item, sources) for item in value)}]"
    if isinstance(value, torch.nn.Module):
        args, named = recovered_arguments(value)
        return _call(type(value), args, named, sources)
    if isinstance(value, type) or inspect.isroutine(value):
        return sources.add(value)
    if dataclasses.is_dataclass(value) and not hasattr(value, "to_diff_dict"):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        named = {name: getattr(value, name) for name in fields}
        return _call(type(value), [], named, sources)
    if hasattr(value, "to_diff_dict"):  # a configuration of transformers
        parameter_names = set(inspect.signature(type(value)).parameters)
        changed = value.to_diff_dict().items()
        named = {key: setting for key, setting in changed if key in parameter_names}
        return _call(type(value), [], named, sources)
    raise ProblemError(
        f"a {type(value).__name__} among the constructor's arguments cannot be written out: {REBUILDING_ADVICE}"
    )


def _call(kind: type, args: list[Any], named: dict[str, Any], sources: ObjectSources) -> str:
    name = sources.add(kind)
    texts = [expression_of(value, sources) for value in args]
    texts += [f"{key}={expression_of(value, sources)}" for key, value in named.items()]
    return f"{name}({', '.join(texts)})"

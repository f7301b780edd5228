"""Execution of a problem's module, with the results of its functions as tensors without values."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kernelwright.device_mapping import cuda_mapped_to, map_cuda_of
from kernelwright.policies.inductor.refusing import PROBLEM, needs_values
from kernelwright.policies.inductor.tracing.loop_syntax import loop_names, with_loops
from kernelwright.policies.inductor.tracing.numbers import number_names, with_numbers

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode


def namespace(source: str) -> dict[str, Any]:
    """Executes the problem's module and returns its namespace."""
    import sys
    import types

    module = types.ModuleType("problem")
    sys.modules["problem"] = module  # dataclasses look there
    module.__dict__.update({**loop_names(), **number_names()})
    with cuda_mapped_to("cpu", source):
        exec(compile(with_numbers(with_loops(ast.parse(source))), PROBLEM, "exec"), module.__dict__)
    map_cuda_of(module.__dict__, "cpu", source)
    for definition in list(vars(module).values()):
        if (
            isinstance(definition, type)
            and dataclasses.is_dataclass(definition)
            and definition.__module__ == "problem"
        ):
            _register_fields(definition)
    return module.__dict__


def _register_fields(cls: Any) -> None:
    """Registers a dataclass of the problem with torch's pytree, so that its tensors are visible."""
    import torch

    names = [f.name for f in dataclasses.fields(cls) if f.init]

    def flatten(value: object) -> tuple[list[Any], Any]:
        return [getattr(value, name) for name in names], None

    def unflatten(values: Iterable[Any], _: object) -> Any:
        return cls(**dict(zip(names, values, strict=True)))

    torch.utils._pytree.register_pytree_node(cls, flatten, unflatten)


def plain_outputs(outputs: Any) -> Any:
    """Returns outputs with every dataclass of another module than the problem's as a dictionary of its fields, such as
    an output of transformers: a draft cannot name its class.
    """
    if (
        dataclasses.is_dataclass(outputs)
        and not isinstance(outputs, type)
        and type(outputs).__module__ != "problem"
    ):
        return {
            f.name: plain_outputs(getattr(outputs, f.name)) for f in dataclasses.fields(outputs)
        }
    if type(outputs) is dict:
        return {key: plain_outputs(value) for key, value in outputs.items()}
    if type(outputs) in (list, tuple):
        return type(outputs)(map(plain_outputs, outputs))
    return outputs


def examples(source: str, mode: FakeTensorMode) -> tuple[dict[str, Any], Any, Any]:
    """Returns the module, and the inputs and constructor arguments as tensors without values."""
    module = namespace(source)
    with mode:
        try:
            inputs = module["get_inputs"]()
        except Exception as error:
            if not needs_values(error):
                raise
            inputs = _drawn(module["get_inputs"], mode)
        if mode.shape_env is not None:
            mode.shape_env.pending_fresh_unbacked_symbols.clear()  # of numbers that only values of inputs came from
        return module, inputs, module["get_init_inputs"]()


def _drawn(get_inputs: Callable[[], Any], mode: FakeTensorMode) -> Any:
    """Returns inputs whose creation needs values (a drawn scale with item()), made with values
    and then stripped of them.
    """
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        inputs = get_inputs()
    with mode:
        return torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda v: torch.empty_strided(v.shape, v.stride(), dtype=v.dtype), inputs
        )


def plain_tensors(model: torch.nn.Module) -> Iterator[tuple[Any, str, str, Any]]:
    """Module, attribute, path and value of tensors that are neither parameters nor buffers."""
    import torch

    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                yield module, name, f"{prefix}.{name}".lstrip("."), value


def tensors_by_path(values: list[Any], paths: list[str]) -> Iterator[tuple[str, Any]]:
    """Path and tensor of all inputs, in the order in which torch flattens them."""
    import torch

    for path, value in zip(paths, values, strict=True):
        if isinstance(value, torch.Tensor):
            yield path, value
        elif isinstance(value, list | tuple):
            yield from tensors_by_path(list(value), [f"{path}[{i}]" for i in range(len(value))])
        elif isinstance(value, dict):
            yield from tensors_by_path(list(value.values()), [f"{path}[{k!r}]" for k in value])


def spelt(name: str) -> str:
    """layers.0.weight -> self.layers[0].weight; a child of a dictionary by its name is an attribute too."""
    return "self" + "".join(
        f"[{part}]" if part.isdigit() else f".{part}" for part in name.split(".")
    )

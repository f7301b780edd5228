"""Execution of a problem's module, with the results of its functions as tensors without values."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kernelwright.device_mapping import cuda_mapped_to, map_cuda_of
from kernelwright.policies.inductor.refusing import PROBLEM, needs_values
from kernelwright.policies.inductor.tracing.loop_syntax import loop_names, with_loops
from kernelwright.policies.inductor.tracing.numbers import number_names, with_numbers
from kernelwright.policies.inductor.values.complex_numbers import (
    COMPLEX,
    as_real_argument,
    is_complex,
    unwrapped_path,
)

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
    """Registers a dataclass of the problem with torch's pytree, to make its tensors visible."""
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

    # Outside of the mode real values are drawn; afterwards only shapes and strides are kept.
    with unset_fake_temporarily():
        inputs = get_inputs()
    with mode:
        return torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda v: torch.empty_strided(v.shape, v.stride(), dtype=v.dtype), inputs
        )


class ModelCall:
    """Runs forward with the arguments of a graph in place of the model's own tensors.

    The arguments of the graph, in this order: parameters and buffers, plain tensors, inputs, and
    symbolic numbers of the constructor.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: list[Any],
        paths: list[str],
        size_arguments: list[tuple[str, Any]],
        recompute: Callable[[dict[str, Any]], None],
    ) -> None:
        """Flattens the arguments.

        paths: of the inputs. size_arguments: paths and values of the symbolic numbers. recompute:
        replaces floats of the model computed from symbolic numbers.
        """
        import torch

        self._model, self._recompute = model, recompute
        self._size_paths = [path for path, _ in size_arguments]
        self._held = dict(model.named_parameters()) | dict(model.named_buffers())
        self._plain = list(plain_tensors(model))
        self._leaves, self._structure = torch.utils._pytree.tree_flatten(inputs)
        self.tensors = list(tensors_by_path(inputs, paths))
        """Paths and tensors of the inputs."""
        arguments: list[tuple[str, Any]] = []
        for name, value in self._held.items():
            arguments.append((spelt(name), value))
        for _, _, name, value in self._plain:
            arguments.append((spelt(name), value))
        arguments += [*self.tensors, *size_arguments]
        self._is_complex = [is_complex(value) for _, value in arguments]
        self.paths: list[str] = []
        self.values: list[Any] = []
        for path, value in arguments:
            real_path, real_value = as_real_argument(path, value)
            self.paths.append(real_path)
            self.values.append(real_value)
        self.form: Any = None
        """Structure of the last result, with None in place of each tensor, or COMPLEX."""

    def run(self, *values: Any) -> list[Any]:
        """Puts the arguments into the model, and returns the tensors of forward's result."""
        import torch

        arguments: list[Any] = []
        for value, was_complex in zip(values, self._is_complex, strict=True):
            arguments.append(torch.view_as_complex(value) if was_complex else value)
        waiting = iter(arguments)
        weights = {name: next(waiting) for name in self._held}
        for module, name, _, _ in self._plain:
            setattr(module, name, next(waiting))
        sizes = values[len(values) - len(self._size_paths) :]
        self._recompute(dict(zip(self._size_paths, sizes, strict=True)))
        leaves: list[Any] = []
        for leaf in self._leaves:
            leaves.append(next(waiting) if isinstance(leaf, torch.Tensor) else leaf)
        inputs = tuple(torch.utils._pytree.tree_unflatten(leaves, self._structure))
        outputs = plain_outputs(torch.func.functional_call(self._model, weights, inputs))
        # A later call changes the model's state, so a result that is state is copied.
        state = {id(value) for value in weights.values()}
        outputs = torch.utils._pytree.tree_map(
            lambda v: v.clone() if id(v) in state else v, outputs
        )
        self.form = torch.utils._pytree.tree_map(
            lambda v: COMPLEX if is_complex(v) else None, outputs
        )
        results: list[Any] = []
        for value in torch.utils._pytree.tree_leaves(outputs):
            results.append(torch.view_as_real(value) if is_complex(value) else value)
        return results


def plain_tensors(model: torch.nn.Module) -> Iterator[tuple[Any, str, str, Any]]:
    """Module, attribute, path and value of tensors outside of parameters and buffers."""
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


def simple_path(path: str) -> str:
    """Returns a path as an identifier: layers_0_weight for `self.layers[0].weight`."""
    return re.sub(r"\W+", "_", unwrapped_path(path).removeprefix("self.")).strip("_")


@contextlib.contextmanager
def forward_alone() -> Iterator[None]:
    """Lets `apply` of every autograd function run its forward, in a block without gradients.

    `torch.func` calls such a function only if it separates `setup_context` from `forward`, which those of models of
    transformers (Bloom's GELU) do not.
    """
    import torch

    function = torch.autograd.Function
    plain = vars(function)["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls.setup_context is not function.setup_context:
            return cls.forward(*args, **kwargs)
        return cls.forward(torch.autograd.function.FunctionCtx(), *args, **kwargs)

    function.apply = classmethod(apply)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        function.apply = plain  # type: ignore[method-assign]

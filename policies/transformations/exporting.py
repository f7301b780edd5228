"""Exports a problem's model as a graph of torch operators, with sizes as symbols if torch can
keep them.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    import torch

    from kernelwright.policies.inductor.graph_types import GraphNode


class NotTransformed(ValueError):
    """Raised if no transformation fits; the message is the reason in one line."""


@dataclass
class ExportedModel:
    """Exported graph of a problem's model, with the names of its inputs and weights."""

    graph: Any
    """torch.fx.Graph of operators that are not decomposed: matmul, softmax.int, scaled_dot_product_attention."""
    inputs: list[str]
    """Names of forward's arguments; in the graph they follow the weights."""
    weights: dict[str, str]
    """Name of a placeholder -> the parameter or buffer it stands for: `linear.weight`."""
    numbers: dict[float, str]
    """Number passed to the constructor -> the only attribute with that value forward uses:
    `self.scale`.
    """
    arguments: int
    """Number of constructor arguments."""
    source: str
    """The text of the problem."""

    @property
    def names(self) -> dict[Any, str]:
        """Returns, for each placeholder, its expression in forward."""
        nodes = [n for n in self.graph.nodes if n.op == "placeholder"]
        input_nodes = [n for n in nodes if n.name not in self.weights]
        expressions = {n: f"self.{self.weights[n.name]}" for n in nodes if n.name in self.weights}
        return expressions | dict(zip(input_nodes, self.inputs, strict=True))


def export(source: str) -> ExportedModel:
    """Executes the problem's text on tensors without values.

    Raises NotTransformed, and whatever the problem or torch.export raises.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.export import Dim
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    module = types.ModuleType("problem")
    sys.modules["problem"] = module  # dataclasses look there
    exec(compile(source, "problem.py", "exec"), module.__dict__)
    with FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()):
        init = module.get_init_inputs()
        model = module.Model(*init)
        inputs = module.get_inputs()
    if not all(isinstance(value, torch.Tensor) for value in inputs):
        raise NotTransformed("an input is no tensor")
    # Dim.AUTO: a symbol if the model permits one, a number otherwise.
    shapes = tuple(dict.fromkeys(range(value.dim()), Dim.AUTO) for value in inputs)
    program = torch.export.export(model, tuple(inputs), dynamic_shapes=shapes, strict=False)
    names = list(inspect.signature(model.forward).parameters)[: len(inputs)]
    signature = program.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise NotTransformed("a call changes what outlives it")
    return ExportedModel(
        program.graph_module.graph, names, weights, _numbers(model, init, source), len(init), source
    )


def _numbers(model: torch.nn.Module, init: Sequence[Any], source: str) -> dict[float, str]:
    numbers = [v for v in init if type(v) in (int, float)]
    attributes: dict[float, str] = {}
    for value in {v for v in numbers if numbers.count(v) == 1}:
        names = [
            name
            for name, attribute in vars(model).items()
            if type(attribute) in (int, float) and attribute == value
        ]
        if len(names) == 1 and len(re.findall(rf"\bself\.{names[0]}\b", source)) > 1:
            attributes[float(value)] = f"self.{names[0]}"
    return attributes


def name_of(node: object) -> str:
    """Returns the name of a node's operator, `softmax` for aten.softmax.int; empty for a node that calls no
    operator.
    """
    if getattr(node, "op", "") != "call_function":
        return ""
    return str(getattr(getattr(node, "target", None), "__name__", "")).partition(".")[0]


def is_node(value: object) -> TypeGuard[GraphNode]:
    """Returns whether an argument of an operator is a node, and not a number or list."""
    return hasattr(value, "users")


def plain(exported: ExportedModel) -> None:
    """Raises NotTransformed for a module with weights or constructor arguments."""
    if exported.weights or exported.arguments:
        raise NotTransformed("the module has weights or arguments of its own")


def size_of(extent: int | torch.SymInt) -> int:
    """Returns a size of the problem's own inputs."""
    return int(extent) if isinstance(extent, int) else int(extent.node.hint)

"""A problem's model as a graph of torch's own operators, with sizes as symbols where torch can keep them."""

from __future__ import annotations

import inspect
import re
import sys
import types
from dataclasses import dataclass
from typing import Any


class NotTransformed(ValueError):
    """No transformation fits; the message is the reason in one line."""


@dataclass
class ExportedModel:
    """One module."""

    graph: Any
    """torch.fx.Graph of operators that are not decomposed: matmul, softmax.int, scaled_dot_product_attention."""
    inputs: list[str]
    """Names of forward's arguments; in the graph they follow the weights."""
    weights: dict[str, str]
    """Name of a placeholder -> the parameter or buffer that it stands for: `linear.weight`."""
    numbers: dict[float, str]
    """A number that the constructor was given -> the only attribute that keeps it and is used: `self.scale`."""
    arguments: int
    """Arguments of the constructor."""
    source: str
    """The text of the problem."""

    @property
    def names(self) -> dict[Any, str]:
        """Returns, for each placeholder, its expression in forward."""
        nodes = [n for n in self.graph.nodes if n.op == "placeholder"]
        given = [n for n in nodes if n.name not in self.weights]
        found = {n: f"self.{self.weights[n.name]}" for n in nodes if n.name in self.weights}
        return found | dict(zip(given, self.inputs, strict=True))


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
    if not all(isinstance(one, torch.Tensor) for one in inputs):
        raise NotTransformed("an input is no tensor")
    shapes = tuple(dict.fromkeys(range(one.dim()), Dim.AUTO) for one in inputs)
    program = torch.export.export(model, tuple(inputs), dynamic_shapes=shapes, strict=False)
    names = list(inspect.signature(model.forward).parameters)[: len(inputs)]
    signature = program.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise NotTransformed("a call changes what outlives it")
    return ExportedModel(
        program.graph_module.graph, names, weights, _numbers(model, init, source), len(init), source
    )


def _numbers(model: Any, init: Any, source: str) -> dict[float, str]:
    given = [v for v in init if type(v) in (int, float)]
    found: dict[float, str] = {}
    for value in {v for v in given if given.count(v) == 1}:
        kept = [
            name for name, own in vars(model).items() if type(own) in (int, float) and own == value
        ]
        if len(kept) == 1 and len(re.findall(rf"\bself\.{kept[0]}\b", source)) > 1:
            found[float(value)] = f"self.{kept[0]}"
    return found


def plain(exported: ExportedModel) -> None:
    """Raises NotTransformed where the module has weights or arguments of its own."""
    if exported.weights or exported.arguments:
        raise NotTransformed("the module has weights or arguments of its own")


def size_of(extent: Any) -> int:
    """Returns a size of the problem's own inputs."""
    return int(extent) if isinstance(extent, int) else int(extent.node.hint)

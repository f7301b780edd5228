"""A problem's model as a graph of torch's own operators, with sizes as symbols where torch can keep them."""

from __future__ import annotations

import inspect
import sys
import types
from dataclasses import dataclass
from typing import Any


class NotTransformed(ValueError):
    """Why no transformation fits. One line."""


@dataclass
class Exported:
    """One module without weights."""

    graph: Any
    """torch.fx.Graph of operators that are not decomposed: matmul, softmax.int, scaled_dot_product_attention."""
    inputs: list[str]
    """Names of forward's arguments."""


def export(source: str) -> Exported:
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
        init = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
        model = module.Model(**init) if isinstance(init, dict) else module.Model(*init)
        inputs = module.get_inputs()
    if list(model.parameters()) or list(model.buffers()) or init:
        raise NotTransformed("the module has weights or arguments of its own")
    if not all(isinstance(one, torch.Tensor) for one in inputs):
        raise NotTransformed("an input is no tensor")
    shapes = tuple(dict.fromkeys(range(one.dim()), Dim.AUTO) for one in inputs)
    program = torch.export.export(model, tuple(inputs), dynamic_shapes=shapes, strict=False)
    names = list(inspect.signature(model.forward).parameters)[: len(inputs)]
    return Exported(program.graph_module.graph, names)

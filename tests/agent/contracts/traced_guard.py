"""Calls a written kernel file with tensors of a GPU that is not there, and prints as JSON what its guard did.

usage: traced_guard.py FILE. Fake tensors on cuda:0 have sizes and strides and no memory: an operator that reads an
element fails on them. torch.compile records a Triton kernel's launch and does not make it.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from typing import Any

import torch
import torch.utils._triton
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.tracing.pretended_gpu.fake_gpu import install_device_guard

CHANNELS = 6


class Operators(TorchDispatchMode):
    """Records the names of the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function.namespace != "prim":  # a fake tensor is asked for its device
            self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def nodes_of_graph(model: torch.nn.Module, x: torch.Tensor) -> list[str]:
    """Returns what torch.compile records of a call, without a break."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    torch.compile(model, fullgraph=True, backend=backend)(x)
    [graph] = graphs
    return [
        str(getattr(n.target, "__name__", n.target))
        for n in graph.graph.nodes
        if n.op.startswith("call")
    ]


def operators_of_call(model: torch.nn.Module, x: torch.Tensor) -> tuple[list[str], str]:
    """Returns the operators of a call until its launch, and how it ends: there is no driver to launch with."""
    with Operators() as operators:
        try:
            model(x)
        except Exception as error:
            return operators.names, f"{type(error).__name__}: {error}"
    return operators.names, ""


def main(path: str) -> None:
    """Prints the operators and the graph for an input in the judged layout, and for one in another layout."""
    logging.disable()
    install_device_guard()
    torch._subclasses.fake_tensor.init_gpu_context = lambda *args, **kwargs: None
    torch.utils._triton.has_triton = lambda: True
    torch.cuda.current_device = lambda: 0
    specification = importlib.util.spec_from_file_location("kernel_file", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    told: dict[str, Any] = {}
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"), torch.no_grad():
        model = module.ModelNew(CHANNELS)
        layouts = {
            "as judged": torch.empty(5, CHANNELS),
            "transposed": torch.empty(CHANNELS, 5).t(),
        }
        for name, x in layouts.items():
            torch._dynamo.reset()
            operators, end = operators_of_call(model, x)
            told[name] = {"operators": operators, "end": end, "graph": nodes_of_graph(model, x)}
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])

"""A graph traced on a CPU becomes a GPU's."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode


def tensor_on_gpu(value: object) -> Any:
    """Returns a tensor without values on the pretended GPU; other values unchanged."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")


def move_to_gpu(graph: torch.fx.GraphModule, flat: list[Any], mode: FakeTensorMode) -> None:
    """Moves a traced graph to the GPU. Tracing runs on a CPU, on which tensors without values
    support all operators.
    """
    import torch
    from torch._dispatch.python import enable_python_dispatcher

    graph.graph.set_codegen(torch.fx.graph.CodeGen())  # flat arguments and outputs
    for node in graph.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            node.meta["original_aten"] = node.target
            if isinstance(node.kwargs.get("device"), torch.device):
                node.kwargs = {**node.kwargs, "device": torch.device("cuda")}
        elif node.op == "get_attr":
            _move_constant(graph, node)
    assert mode.shape_env is not None
    mode.shape_env.pending_fresh_unbacked_symbols.clear()  # of numbers that tracing asked constants for
    with enable_python_dispatcher():
        _propagation()(graph, mode).propagate_dont_convert_inputs(*flat)


@functools.lru_cache(maxsize=1)
def _propagation() -> Any:
    """Returns the interpreter class that computes sizes and dtypes, with written constants on the
    GPU.
    """
    import torch
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    class OnGPU(FakeTensorProp):
        def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            value = super().get_attr(target, args, kwargs)
            return (
                tensor_on_gpu(value) if isinstance(value, torch.Tensor) and value.dim() else value
            )

        def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            """A GPU's convolution may order its elements otherwise than a CPU's, so a view may be a copy."""
            aten = torch.ops.aten
            return super().call_function(
                aten.reshape.default if target is aten.view.default else target, args, kwargs
            )

    return OnGPU


def _move_constant(graph: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    """Recreates a number written in forward as a tensor (`torch.tensor(0.5)`) on the GPU.

    Tensors of several numbers are constants of the candidate (lowering/written_numbers.py).
    """
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    value = getattr(graph, str(node.target), None)
    if not isinstance(value, torch.Tensor) or value.dim():
        return
    with unset_fake_temporarily():  # among fake tensors a number is a symbol that nothing can give
        number = value.item()
    with graph.graph.inserting_after(node):
        options: dict[str, Any] = {"dtype": value.dtype, "device": torch.device("cuda")}
        moved = graph.graph.call_function(torch.ops.aten.full.default, ([], number), options)
    node.replace_all_uses_with(moved)

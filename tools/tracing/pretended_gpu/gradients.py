"""Gradients without a device: torch's own engine asks for an accelerator before it goes backwards from a tensor on
cuda, so what `torch.autograd.grad` and `backward` do is done here, node by node. Each node is torch's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

Edge = tuple[Any, int]
"""A node of the graph and which of its inputs: as `torch.autograd.graph.get_gradient_edge` gives it."""
LEAF = "AccumulateGrad"


def grad(
    outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    only_inputs: bool = True, allow_unused: bool | None = None, is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """As `torch.autograd.grad`; hooks of tensors are not called, and batches of gradients are refused."""
    if is_grads_batched:
        raise RuntimeError(
            "is_grads_batched is not understood where no GPU is: take the gradients one by one"
        )
    wanted = [_edge(one) for one in _listed(inputs)]
    found = _backwards(_listed(outputs), _listed(grad_outputs), create_graph)
    gradients = tuple(found.get(edge) for edge in wanted)
    if any(g is None for g in gradients) and not (allow_unused or materialize_grads):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph."
        )
    if not materialize_grads:
        return gradients
    pairs = zip(gradients, _listed(inputs), strict=True)
    return tuple(torch.zeros_like(x) if g is None else g for g, x in pairs)


def backward(
    tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    grad_variables: Any = None, inputs: Any = None,
) -> None:  # fmt: skip
    """As `torch.autograd.backward`: gradients are added to those of the leaves, or of `inputs` alone."""
    found = _backwards(_listed(tensors), _listed(grad_tensors), create_graph)
    only = None if inputs is None else {_edge(one) for one in _listed(inputs)}
    for (node, place), gradient in found.items():
        if node.name().endswith(LEAF) and (only is None or (node, place) in only):
            leaf = node.variable
            leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient


def backward_of_tensor(
    self: Any,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """As `torch.Tensor.backward`."""
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, Sequence) else [value]


def _edge(tensor: Any) -> Edge:
    edge = torch.autograd.graph.get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _backwards(outputs: list[Any], given: list[Any], create_graph: bool) -> dict[Edge, Any]:
    """The gradient that arrives at every edge of the graph."""
    arrived: dict[Edge, Any] = {}
    for output, gradient in zip(outputs, given or [None] * len(outputs), strict=True):
        if gradient is None and output.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        _add(arrived, _edge(output), torch.ones_like(output) if gradient is None else gradient)
    with torch.set_grad_enabled(create_graph):
        for node in _in_order({node for node, _ in arrived}):
            if node.name().endswith(LEAF):
                continue
            inputs = [arrived.get((node, i)) for i in range(len(node._input_metadata))]
            if all(one is None for one in inputs):
                continue
            made = _call(node)(*_without_gaps(node, inputs))
            for edge, gradient in zip(
                node.next_functions, made if isinstance(made, tuple) else (made,), strict=False
            ):
                if edge[0] is not None and gradient is not None:
                    _add(arrived, edge, gradient)
    return arrived


def _is_of_python(node: Any) -> bool:
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def _call(node: Any) -> Callable[..., Any]:
    """What a node does: its own for torch's nodes, the written `backward` for a Function of Python."""
    own: Callable[..., Any] = node.apply if _is_of_python(node) else node
    return own


def _without_gaps(node: Any, inputs: list[Any]) -> list[Any]:
    """Zeros in the place of what did not arrive at a Function of Python, as torch gives them."""
    if not _is_of_python(node):
        return inputs
    forms = node._input_metadata
    return [
        torch.zeros(tuple(form.shape), dtype=form.dtype, device=form.device) if one is None else one
        for one, form in zip(inputs, forms, strict=True)
    ]


def _add(arrived: dict[Edge, Any], edge: Edge, gradient: Any) -> None:
    arrived[edge] = gradient if edge not in arrived else arrived[edge] + gradient


def _in_order(roots: Iterable[Any]) -> list[Any]:
    """All nodes that can be reached, each after every node that leads to it."""
    leading: dict[Any, int] = dict.fromkeys(roots, 0)
    waiting = deque(leading)
    while waiting:
        for following, _ in waiting.popleft().next_functions:
            if following is None:
                continue
            if following not in leading:
                waiting.append(following)
            leading[following] = leading.get(following, 0) + 1
    ready, order = deque(n for n, count in leading.items() if not count), list[Any]()
    while ready:
        order.append(node := ready.popleft())
        for following, _ in node.next_functions:
            if following is not None:
                leading[following] -= 1
                if not leading[following]:
                    ready.append(following)
    return order

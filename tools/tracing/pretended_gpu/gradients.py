"""Computes gradients without a device, by calling torch's own backward nodes in topological order.

torch's engine requires an accelerator for tensors on cuda, so `torch.autograd.grad` and `backward`
are replaced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

Edge = tuple[Any, int]
"""A graph node and its input number, as returned by `torch.autograd.graph.get_gradient_edge`."""
LEAF = "AccumulateGrad"


def grad(
    outputs: object, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
    is_grads_batched: bool = False, materialize_grads: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """Replaces `torch.autograd.grad`, without tensor hooks and without batched gradients."""
    if is_grads_batched:
        raise RuntimeError(
            "is_grads_batched is not understood where no GPU is: take the gradients one by one"
        )
    edges = [_edge(item) for item in _listed(inputs)]
    gradients_by_edge = _backwards(_listed(outputs), _listed(grad_outputs), create_graph)
    gradients = tuple(gradients_by_edge.get(edge) for edge in edges)
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
    grad_variables: object = None, inputs: Any = None,
) -> None:  # fmt: skip
    """Replaces `torch.autograd.backward`: adds gradients to those of the leaves, or of `inputs`
    alone."""
    gradients_by_edge = _backwards(_listed(tensors), _listed(grad_tensors), create_graph)
    only = None if inputs is None else {_edge(item) for item in _listed(inputs)}
    for (node, input_number), gradient in gradients_by_edge.items():
        if node.name().endswith(LEAF) and (only is None or (node, input_number) in only):
            leaf = node.variable
            leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient


def backward_of_tensor(
    self: Any,
    gradient: torch.Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Replaces `torch.Tensor.backward`."""
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def _listed(value: object) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, Sequence) else [value]


def _edge(tensor: torch.Tensor) -> Edge:
    edge = torch.autograd.graph.get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _backwards(
    outputs: list[Any], output_gradients: list[Any], create_graph: bool
) -> dict[Edge, Any]:
    """Returns the gradient at every edge of the graph."""
    arrived: dict[Edge, Any] = {}
    for output, gradient in zip(outputs, output_gradients or [None] * len(outputs), strict=True):
        if gradient is None and output.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        _add(arrived, _edge(output), torch.ones_like(output) if gradient is None else gradient)
    with torch.set_grad_enabled(create_graph):
        for node in _in_order({node for node, _ in arrived}):
            if node.name().endswith(LEAF):
                continue
            inputs = [arrived.get((node, i)) for i in range(len(node._input_metadata))]
            if all(item is None for item in inputs):
                continue
            results = _call(node)(*_without_gaps(node, inputs))
            for edge, gradient in zip(
                node.next_functions,
                results if isinstance(results, tuple) else (results,),
                strict=False,
            ):
                if edge[0] is not None and gradient is not None:
                    _add(arrived, edge, gradient)
    return arrived


def _is_of_python(node: object) -> bool:
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def _call(node: Any) -> Callable[..., Any]:
    """Returns a node's function: the node itself for torch's nodes, the written `backward` for a
    Python Function."""
    function: Callable[..., Any] = node.apply if _is_of_python(node) else node
    return function


def _without_gaps(node: Any, inputs: list[Any]) -> list[Any]:
    """Replaces missing gradients of a Python Function by zeros, as torch does."""
    if not _is_of_python(node):
        return inputs
    forms = node._input_metadata
    return [
        torch.zeros(tuple(form.shape), dtype=form.dtype, device=form.device)
        if gradient is None
        else gradient
        for gradient, form in zip(inputs, forms, strict=True)
    ]


def _add(arrived: dict[Edge, Any], edge: Edge, gradient: torch.Tensor) -> None:
    arrived[edge] = gradient if edge not in arrived else arrived[edge] + gradient


def _in_order(roots: Iterable[Any]) -> list[Any]:
    """Returns all reachable nodes in topological order."""
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

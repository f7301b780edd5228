"""Types of traced graphs, as far as this project reads them.

torch.fx types the arguments of a node as a union of a dozen types; here the reader of a graph knows the operator, and
with it the types of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import torch


class GraphNode(Protocol):
    """Node of a torch.fx graph."""

    name: str
    op: str
    """Kind of node: `placeholder`, `get_attr`, `call_function` or `output`."""
    target: Any
    """Operator of a `call_function`, name of a `get_attr`."""
    args: Any
    """Positional arguments: nodes, numbers, and lists of these."""
    kwargs: dict[str, Any]
    meta: dict[str, Any]
    """Facts about the node; `val` is its value, a tensor without data."""
    users: Mapping[GraphNode, None]
    """Nodes that read this node."""

    def replace_all_uses_with(self, node: object) -> Any:
        """Lets all users read another node."""


class Graph(Protocol):
    """Operators of a model in order."""

    nodes: Iterable[GraphNode]


Operator = Callable[..., Any]
"""Operator of torch, or a function with the operator's parameters."""


def nodes_of(graph: torch.fx.GraphModule) -> list[GraphNode]:
    """Returns the nodes of a graph in order."""
    return [cast(GraphNode, node) for node in graph.graph.nodes]

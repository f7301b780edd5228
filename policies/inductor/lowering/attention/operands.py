"""Operands of the operator of attention: they are read in place, by their strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelwright.policies.inductor.graph_types import GraphNode

ATTENTION_TARGET = "kernelwright.attention.default"
ATTENTION_VIEWS = frozenset(
    {"view", "_unsafe_view", "reshape", "permute", "transpose", "t", "select", "slice", "squeeze", "unsqueeze",
     "expand", "alias", "unbind", "split", "split_with_sizes", "getitem"}
)  # fmt: skip
"""Names of operators without data movement."""


def feeds_attention(node: GraphNode) -> bool:
    """Returns whether an attention reads a view of a node's result."""
    if _name(node) in ATTENTION_VIEWS:
        return False
    waiting, visited = list(node.users), set()
    while waiting:
        user = waiting.pop()
        if str(user.target) == ATTENTION_TARGET:
            return True
        if user not in visited and _name(user) in ATTENTION_VIEWS:
            waiting += user.users
        visited.add(user)
    return False


def _name(node: GraphNode) -> str:
    return str(getattr(node.target, "__name__", node.target)).partition(".")[0]

"""Counts the launches of an exported graph's nodes and the bytes they move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def is_computing(node: torch.fx.Node) -> bool:
    """Returns whether a node of a graph launches a kernel: no view, no size, no allocation."""
    import torch

    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    schema = node.target._schema
    is_view = any(returned.alias_info is not None for returned in schema.returns)
    layout = {"aten::reshape", "aten::to", "aten::contiguous", "aten::sym_size", "aten::dropout"}
    layout |= {"aten::chunk", "aten::split", "aten::type_as", "aten::flatten"}
    return not is_view and schema.name not in layout


def bytes_of_node(node: torch.fx.Node) -> int:
    """Returns the bytes read and written by a node."""
    return bytes_of(node) + sum(bytes_of(argument) for argument in node.all_input_nodes)


def bytes_of(node: torch.fx.Node) -> int:
    """Returns the bytes of a node's value."""
    import torch
    from torch.utils import _pytree

    total = 0
    for value in _pytree.tree_leaves(node.meta.get("val")):
        if isinstance(value, torch.Tensor):
            # Sizes are symbols with the sizes of the example as hints.
            total += value.element_size() * int(torch.Size(map(extent_of, value.shape)).numel())
    return total


def extent_of(extent: Any) -> int:
    """Returns an extent as a number; for a symbol its value in the example."""
    return extent if isinstance(extent, int) else int(extent.node.hint)

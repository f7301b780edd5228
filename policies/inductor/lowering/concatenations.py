"""Nested concatenations: if a concatenation begins with the parts of an earlier one, it reuses
the earlier result.

A densely connected network concatenates all earlier layers for each new layer, and would copy
every part each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def nested_concatenations(graph: torch.fx.GraphModule) -> None:
    """Lets a concatenation whose first parts are another one's take them as a whole, in place."""
    import torch

    known_concatenations: dict[tuple[Any, ...], Any] = {}
    for node in graph.graph.nodes:
        if node.target is not torch.ops.aten.cat.default:
            continue
        parts, axis = (
            tuple(node.args[0]),
            node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0),
        )
        for count in range(len(parts) - 1, 1, -1):
            if (first := known_concatenations.get((axis, *parts[:count]))) is not None:
                node.args = ([first, *parts[count:]], axis)
                node.kwargs = {}
                break
        known_concatenations.setdefault((axis, *parts), node)

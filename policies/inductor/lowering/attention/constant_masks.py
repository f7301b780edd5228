"""Masks that depend on sizes alone, recognised by their values: the part of the graph that gives them is executed.

`torch.tril(torch.ones(n, n))`, a comparison of two ranges, and a triangle of minus infinity are one mask in many
spellings; all of them are evaluated at small sizes, and compared with the causal mask.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from kernelwright.policies.inductor.graph_types import GraphNode

SIZES = (5, 7, 6, 4, 9, 8)
"""Values that symbols of sizes take in turn: small, and different from each other."""
MAX_EXTENT = 4096
"""Largest extent of a mask with sizes that are numbers: larger ones are not evaluated."""
MAX_SCORE = -1e4
"""A number that hides a key when it is added to a score."""


class _NoConstant(Exception):
    """The mask depends on data."""


def is_causal_mask(mask: GraphNode, turned: bool = False) -> bool:
    """Whether a key is seen exactly by the rows that do not come before it.

    A boolean mask is true where a key is seen (turned: where it is not); another one is added to the scores.
    """
    shape = mask.meta["val"].shape
    if any(not hasattr(n, "node") and n > MAX_EXTENT for n in shape):
        return False
    try:
        return all(_is_causal_at(mask, turned, shift) for shift in range(2))
    except _NoConstant:
        return False


def _is_causal_at(mask: GraphNode, turned: bool, shift: int) -> bool:
    import torch

    numbers: dict[str, int] = {}
    value = _evaluated(mask, numbers, shift, {})
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or value.shape[-1] < 2:
        return False
    if value.dtype == torch.bool:
        seen = ~value if turned else value
    else:
        seen = value == 0
        if not bool((seen | (value <= MAX_SCORE)).all()):
            return False
    expected = torch.ones(value.shape[-2:], dtype=torch.bool).tril()
    return bool((seen == expected).all())


def _evaluated(node: Any, numbers: dict[str, int], shift: int, known: dict[Any, Any]) -> Any:
    """Returns the value of a node at small sizes. Raises _NoConstant."""
    import torch

    if isinstance(node, list | tuple):
        return type(node)(_evaluated(element, numbers, shift, known) for element in node)
    if isinstance(node, torch.device):
        return torch.device("cpu")
    if not hasattr(node, "meta"):
        return node
    if node not in known:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            known[node] = _size_at(value, numbers, shift)
        elif node.op != "call_function" or not isinstance(value, torch.Tensor):
            raise _NoConstant
        else:
            arguments = [_evaluated(a, numbers, shift, known) for a in node.args]
            named = {k: _evaluated(v, numbers, shift, known) for k, v in node.kwargs.items()}
            try:
                known[node] = node.target(*arguments, **named)
            except Exception as error:  # an operator of ours, or one that needs other sizes
                raise _NoConstant from error
    return known[node]


def _size_at(size: torch.SymInt, numbers: dict[str, int], shift: int) -> int:
    expression = size.node.expr
    for symbol in sorted(map(str, expression.free_symbols)):
        numbers.setdefault(symbol, SIZES[(len(numbers) + shift) % len(SIZES)])
    value = expression.subs({s: numbers[str(s)] for s in expression.free_symbols})
    if not value.is_number or math.isinf(value):
        raise _NoConstant
    return int(value)

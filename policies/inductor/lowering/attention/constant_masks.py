"""Masks that depend on sizes alone, recognised by their values: the part of the graph behind them is executed.

`torch.tril(torch.ones(n, n))`, a comparison of two ranges, and a triangle of minus infinity are one mask in many
spellings; all of them are evaluated at small sizes, and compared with the causal mask.

A sliding window of 256 keys is causal at small sizes. So the mask is evaluated a second time with every such distance
set to DISTANCE: `row - key < 256` becomes `row - key < 3`, which hides keys at the small sizes, too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.lowering.attention.reading import name_of

if TYPE_CHECKING:
    import torch

    from kernelwright.policies.inductor.graph_types import GraphNode

MASK_SIZES = (5, 7, 6, 4, 9, 8)
"""Values that symbols of sizes take in turn: small, and different from each other."""
MAX_EXTENT = 4096
"""Largest extent of an evaluated mask with numeric sizes."""
MAX_SCORE = -1e4
"""Score offset that hides a key."""
DISTANCE = 3
"""Takes the place of a larger distance; every size of MASK_SIZES exceeds it."""
DISTANCE_OPERATORS = frozenset(
    {"add", "sub", "rsub", "lt", "le", "gt", "ge", "eq", "ne", "tril", "triu", "floor_divide", "div", "remainder"}
)  # fmt: skip
"""Operators whose numbers are distances between rows and keys, or lengths of blocks of them."""


class _NoConstant(Exception):
    """The mask depends on data."""


def is_causal_mask(mask: GraphNode, turned: bool = False) -> bool:
    """True if each key is seen exactly by its own and later rows.

    A boolean mask is true where a key is seen (turned: where it is not); another one is added to the scores.
    """
    shape = mask.meta["val"].shape
    if any(not hasattr(n, "node") and n > MAX_EXTENT for n in shape):
        return False
    try:
        return all(
            _is_causal_at(mask, turned, shift, short)
            for shift in range(2)
            for short in (False, True)
        )
    except _NoConstant:
        return False


def _is_causal_at(mask: GraphNode, turned: bool, shift: int, short: bool) -> bool:
    """Compares the mask with the causal one at small sizes. short: long distances are set to DISTANCE."""
    import torch

    value = _Evaluation(shift, short).value(mask)
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


class _Evaluation:
    """Values of nodes at small sizes."""

    def __init__(self, shift: int, short: bool) -> None:
        """shift: where in MASK_SIZES the first symbol begins. short: long distances are set to DISTANCE."""
        self._shift, self._short = shift, short
        self._numbers: dict[str, int] = {}
        self._values: dict[Any, Any] = {}

    def value(self, node: Any) -> Any:
        """Returns the value of a node. Raises _NoConstant."""
        import torch

        if isinstance(node, list | tuple):
            return type(node)(self.value(element) for element in node)
        if isinstance(node, torch.device):
            return torch.device("cpu")
        if not hasattr(node, "meta"):
            return node
        if node not in self._values:
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                self._values[node] = _size_at(value, self._numbers, self._shift)
            elif node.op != "call_function" or not isinstance(value, torch.Tensor):
                raise _NoConstant
            else:
                self._values[node] = self._result(node)
        return self._values[node]

    def _result(self, node: Any) -> Any:
        """Executes an operator. Raises _NoConstant."""
        arguments = list(node.args)
        if self._short and name_of(node) in DISTANCE_OPERATORS:
            arguments = [_shortened(argument) for argument in arguments]
        arguments = [self.value(argument) for argument in arguments]
        named = {key: self.value(argument) for key, argument in node.kwargs.items()}
        try:
            return node.target(*arguments, **named)
        except Exception as error:  # an operator of ours, or one that needs other sizes
            raise _NoConstant from error


def _shortened(argument: object) -> Any:
    if isinstance(argument, int) and not isinstance(argument, bool) and abs(argument) > DISTANCE:
        return DISTANCE if argument > 0 else -DISTANCE
    return argument


def _size_at(size: torch.SymInt, numbers: dict[str, int], shift: int) -> int:
    expression = size.node.expr
    for symbol in sorted(map(str, expression.free_symbols)):
        numbers.setdefault(symbol, MASK_SIZES[(len(numbers) + shift) % len(MASK_SIZES)])
    value = expression.subs({s: numbers[str(s)] for s in expression.free_symbols})
    if not value.is_number or math.isinf(value):
        raise _NoConstant
    return int(value)

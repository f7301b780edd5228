"""Recognises written-out attention, from its softmax to both products.

Example: `bmm(q, k^T)`, `mul(0.125)`, `add(mask)`, `amax`, `sub`, `exp`, `sum`, `div`, `bmm(v)` are Scores of the
first product with the scale 0.125 and one added mask.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.graph_types import GraphNode

if TYPE_CHECKING:
    import torch

    Size = int | torch.SymInt

UNCHANGED = frozenset({"clone", "alias", "expand", "_to_copy", "convert_element_type"})
"""Operators without effect on values (up to rounding) and positions."""
RESHAPES = frozenset({"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"})


@dataclass
class Scores:
    """What happens to query key^T before the softmax, read from the softmax upwards."""

    product: Any = None
    scale: float = 1.0
    sizes: list[tuple[str, GraphNode]] = field(default_factory=list)
    """`mul` or `div` by a number computed from sizes, such as the root of a head's size."""
    cap: float = 0.0
    """c of the soft cap c * tanh(scores / c), or 0."""
    added: list[tuple[GraphNode, float]] = field(default_factory=list)
    """Additive masks and their factors."""
    seen: GraphNode | None = None
    """Boolean mask of visible keys."""
    turned: bool = False
    """Whether `seen` is true where a key is not seen."""
    fill: float = -math.inf


class NoAttention(Exception):
    """Raised for a softmax outside of supported attention."""


def name_of(node: object) -> str:
    """Returns `bmm` for a node of aten.bmm.default, an empty text for what calls no operator."""
    if getattr(node, "op", "") != "call_function":
        return ""
    return str(getattr(getattr(node, "target", None), "__name__", "")).partition(".")[0]


def softmax_input(quotient: GraphNode) -> GraphNode:
    """Returns x of exp(x - max(x)) / sum(exp(x - max(x))) over the last axis. Raises NoAttention."""
    exponentials, total = quotient.args[:2]
    if (
        name_of(exponentials) != "exp"
        or name_of(total) != "sum"
        or total.args[0] is not exponentials
    ):
        raise NoAttention
    difference = exponentials.args[0]
    if name_of(difference) != "sub" or len(difference.args) < 2:
        raise NoAttention
    x, largest = difference.args[:2]
    if (
        name_of(largest) != "amax"
        or largest.args[0] is not x
        or set(x.users) != {difference, largest}
    ):
        raise NoAttention
    rank = x.meta["val"].dim()
    for reduction in (largest, total):
        axes = [axis % rank for axis in reduction.args[1]]
        if axes != [rank - 1] or len(reduction.users) != 1:
            raise NoAttention
    return x


def weighted_sum(quotient: GraphNode) -> tuple[GraphNode, GraphNode]:
    """Returns the product of the weights and the values, and the values. Raises NoAttention."""
    node = quotient
    while len(node.users) == 1:
        (user,) = node.users
        if name_of(user) == "bmm" and user.args[0] is node:
            return user, user.args[1]
        if not moves_nothing(user):
            break
        node = user
    raise NoAttention


def moves_nothing(node: GraphNode) -> bool:
    """Whether elements keep their order and their last axis, but for axes of length 1."""
    name = name_of(node)
    if name not in UNCHANGED | RESHAPES | {"permute"}:
        return False
    before, after = node.args[0].meta["val"].shape, node.meta["val"].shape
    if name == "permute":
        order = [axis for axis in node.args[1] if not are_equal((before[axis],), (1,))]
        return order == sorted(order)
    return are_equal(_without_units(before)[-1:], _without_units(after)[-1:])


def _without_units(shape: Sequence[Size]) -> list[Size]:
    return [size for size in shape if not are_equal((size,), (1,))]


def read_scores(node: GraphNode) -> Scores:
    """Follows the scores up to their product. Raises NoAttention."""
    scores = Scores()
    while True:
        name = name_of(node)
        if name in ("bmm", "baddbmm"):
            scores.product = node
            if name == "baddbmm":
                if scores.sizes:
                    raise NoAttention
                _take_base(scores, node)
            return scores
        if moves_nothing(node):
            node = node.args[0]
        elif name in ("mul", "div") and _is_scalar(node.args[1]):
            node = _capped(scores, node) or _scaled(scores, node)
        elif (
            name == "add"
            and not scores.cap
            and not scores.sizes
            and not _is_number(node.args[1])
            and not node.kwargs
        ):
            node = _take_added(scores, node)
        elif name == "where" and not scores.cap and not scores.sizes:
            node = _take_filled(scores, node)
        else:
            raise NoAttention
        if len(node.users) != 1:
            raise NoAttention


def _scaled(scores: Scores, node: GraphNode) -> GraphNode:
    if not _is_number(node.args[1]):
        scores.sizes.append((name_of(node), node.args[1]))
        return node.args[0]
    factor = float(node.args[1]) if name_of(node) == "mul" else 1 / float(node.args[1])
    if factor <= 0:
        raise NoAttention
    scores.scale *= factor
    return node.args[0]


def _capped(scores: Scores, node: GraphNode) -> GraphNode | None:
    """Returns what is under `mul(tanh(div(x, c)), c)`; None for another product."""
    tanh = node.args[0]
    if name_of(node) != "mul" or name_of(tanh) != "tanh" or len(tanh.users) != 1:
        return None
    if not _is_number(node.args[1]) or scores.sizes:
        return None
    inner = tanh.args[0]
    if name_of(inner) not in ("div", "mul") or not _is_number(inner.args[1]):
        return None
    if scores.cap or scores.scale != 1.0:
        return None
    cap = float(inner.args[1]) if name_of(inner) == "div" else 1 / float(inner.args[1])
    if len(inner.users) != 1 or not math.isclose(cap, float(node.args[1]), rel_tol=1e-6):
        return None
    scores.cap = cap
    return inner.args[0]


def _take_base(scores: Scores, node: GraphNode) -> None:
    """Reads base * beta + (query key^T) * alpha."""
    if scores.cap or not all(_is_number(v) for v in node.kwargs.values()):
        raise NoAttention
    scores.added.append((node.args[0], scores.scale * float(node.kwargs.get("beta", 1))))
    scores.scale *= float(node.kwargs.get("alpha", 1))


def _take_added(scores: Scores, node: GraphNode) -> GraphNode:
    """Returns the addend behind the product; the other addend is a mask."""
    for addend, mask in (node.args[:2], node.args[1::-1]):
        if _leads_to_product(addend):
            scores.added.append((mask, scores.scale))
            return addend
    raise NoAttention


def _leads_to_product(node: object) -> bool:
    """Whether scores come from here: a product, or what is computed from one element by element."""
    name = name_of(node)
    arguments: tuple[object, ...] = getattr(node, "args", ())
    if name in UNCHANGED | RESHAPES | {"permute", "mul", "div", "tanh"}:
        return _leads_to_product(arguments[0])
    if name == "add":
        return any(_leads_to_product(argument) for argument in arguments[:2])
    if name == "where":
        return any(_leads_to_product(argument) for argument in arguments[1:3])
    return name in ("bmm", "baddbmm")


def _fill_of(node: object) -> float | None:
    """Returns the fill value of a constant node; None for other nodes."""
    arguments = list(getattr(node, "args", ()))
    if name_of(node) == "scalar_tensor" and _is_number(arguments[0]):
        return float(arguments[0])
    if name_of(node) == "full" and _is_number(arguments[1]):
        return float(arguments[1])
    return None


def _take_filled(scores: Scores, node: GraphNode) -> GraphNode:
    """Reads where(seen, scores, fill), or where(hidden, fill, scores). Raises NoAttention."""
    condition, first, second = node.args[:3]
    fill = _fill_of(first)
    hides = fill is not None
    kept = second if hides else first
    fill = fill if hides else _fill_of(second)
    if fill is None or scores.seen is not None or scores.added:
        raise NoAttention
    scores.seen, scores.turned, scores.fill = condition, hides, fill * scores.scale
    return kept


def _is_scalar(value: object) -> bool:
    """True for a number, or a node with a number."""
    val = getattr(value, "meta", {}).get("val")
    return _is_number(value) or (hasattr(val, "node") and not hasattr(val, "shape"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def are_equal(first: Sequence[Size], second: Sequence[Size]) -> bool:
    """Whether shapes are known to be equal, without a guard."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return len(first) == len(second) and all(
        bool(statically_known_true(a == b)) for a, b in zip(first, second, strict=True)
    )

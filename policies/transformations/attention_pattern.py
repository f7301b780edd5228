"""Finds `softmax(q k^T * scale + mask) v` in a graph, written out or as scaled_dot_product_attention."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from kernelwright.policies.transformations.exporting import NotTransformed

if TYPE_CHECKING:
    from kernelwright.policies.inductor.graph_types import Graph, GraphNode

MASKED_SCORE = -math.inf
PASSED_OPERATORS = {
    "clone",
    "contiguous",
    "detach",
    "alias",
    "to",
    "_to_copy",
    "dropout",
    "expand",
    "type_as",
    "float",
}
"""Operators between softmax and product that leave values unchanged (dropout outside of training
among them).
"""


class MaskKind(IntEnum):
    """The ways in which a mask changes scores."""

    NONE = 0
    ADDED = 1
    KEPT = 2
    """The score is the fill if the mask is false."""
    DROPPED = 3
    """The score is the fill if the mask is true."""


@dataclass
class Attention:
    """An attention in a graph. Nodes are torch.fx nodes."""

    query: Any
    key: Any
    value: Any
    output: Any
    """The node whose value the kernel gives."""
    key_transposed: bool = False
    """The key stands as (..., head_dim, length) and has to be transposed."""
    scales: list[tuple[str, Any]] = field(default_factory=list)
    """`*` or `/` and a number or a node, in order."""
    default_scale: bool = False
    """1 / sqrt(head_dim), as scaled_dot_product_attention takes it."""
    causal: bool = False
    mask: Any = None
    mask_kind: MaskKind = MaskKind.NONE
    fill: float = MASKED_SCORE
    zero_rows: bool = False
    """A row without any key is 0, as in scaled_dot_product_attention, and not NaN."""


def name_of(node: object) -> str:
    """Returns the name of a node's operator, `softmax` for aten.softmax.int; empty for a node that calls no
    operator.
    """
    target = getattr(node, "target", None)
    return (
        str(getattr(target, "__name__", "")).partition(".")[0]
        if getattr(node, "op", "") == "call_function"
        else ""
    )


def find_attention(graph: Graph) -> Attention:
    """Returns the only attention of a graph. Raises NotTransformed."""
    attentions = list(_all_attentions(graph))
    if len(attentions) != 1:
        raise NotTransformed(f"{len(attentions)} attentions in the graph, not one")
    return attentions[0]


def _all_attentions(graph: Graph) -> Iterator[Attention]:
    for node in graph.nodes:
        if name_of(node) == "scaled_dot_product_attention":
            yield _of_torch(node)
        elif (
            name_of(node) in ("softmax", "_softmax")
            and (attention := _written_out(node)) is not None
        ):
            yield attention


def _of_torch(node: GraphNode) -> Attention:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    arguments = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    if arguments.get("dropout_p"):
        raise NotTransformed("its dropout draws random numbers")
    attention = Attention(
        arguments["query"], arguments["key"], arguments["value"], node, zero_rows=True
    )
    attention.causal = bool(arguments.get("is_causal", False))
    scale = arguments.get("scale")
    attention.default_scale, attention.scales = (
        scale is None,
        [] if scale is None else [("*", scale)],
    )
    mask = arguments.get("attn_mask")
    if mask is not None:
        attention.mask, attention.mask_kind = (
            mask,
            MaskKind.KEPT if _is_boolean(mask) else MaskKind.ADDED,
        )
    return attention


# ------------------------------------------------------------------ written out
def _written_out(softmax: GraphNode) -> Attention | None:
    """Returns the attention around a softmax; None if no product follows."""
    product, users = softmax, list(softmax.users)
    while len(users) == 1 and name_of(users[0]) in PASSED_OPERATORS and users[0].args[0] is product:
        product, users = users[0], list(users[0].users)
    if len(users) != 1 or not _is_product(users[0], "qk,kd->qd"):
        return None
    # softmax(scores) @ value
    weights, value = _operands(users[0])
    if weights is not product or not _is_last(softmax):
        return None
    attention = Attention(None, None, value, users[0])
    # scores = mask(scale(query @ key^T))
    scores = _follow_to_product(softmax.args[0], attention)
    if _is_product(scores, "qd,dk->qk"):
        attention.query, transposed = _operands(scores)
        attention.key = _untransposed(transposed)
        if attention.key is None:
            attention.key, attention.key_transposed = transposed, True
    elif _is_product(scores, "qd,kd->qk"):
        attention.query, attention.key = _operands(scores)
    else:
        return None
    return attention


def _follow_to_product(node: GraphNode, attention: Attention) -> Any:
    """Follows the softmax's input up to the product, and records scale and mask on the path.

    Raises NotTransformed for an order of mask and scale that the kernel does not support.
    """
    while len(node.users) == 1:
        name = name_of(node)
        if name in ("mul", "div") and not _is_tensor(node.args[1]):
            if (
                attention.mask_kind is MaskKind.ADDED
                and attention.mask is not None
                and attention.mask in _users_of(node)
            ):
                raise NotTransformed("a mask is added before the scores are scaled")
            attention.scales.insert(0, ("*" if name == "mul" else "/", node.args[1]))
        elif name == "add" and _is_tensor(node.args[1]):
            _take_added(attention, node.args[1])
        elif name == "masked_fill":
            _take_filled(attention, node.args[1], node.args[2], drops=True)
        elif name == "where" and _is_fill(node.args[2]):
            _take_filled(attention, node.args[0], node.args[2], drops=False)
            node = node.args[1]
            continue
        elif name not in PASSED_OPERATORS:
            return node
        node = node.args[0]
    return node


def _users_of(node: GraphNode) -> set[Any]:
    return set(node.users)


def _take_added(attention: Attention, mask: GraphNode) -> None:
    if (
        name_of(mask) == "triu"
        and _number(mask.args[1:], 0) == 1
        and _filled_with(mask.args[0]) == MASKED_SCORE
    ):
        attention.causal = True
        return
    _set_mask(attention, mask, MaskKind.ADDED, MASKED_SCORE)


def _take_filled(
    attention: Attention, mask: GraphNode, value: GraphNode | float, drops: bool
) -> None:
    fill = _fill_of(value)
    if _is_upper(mask) if drops else _is_lower(mask):
        if fill > -1e4:
            raise NotTransformed(f"masked scores are {fill}, which is not as good as nothing")
        attention.causal = True
        return
    inner = _negated(mask)
    if inner is not None:
        mask, drops = inner, not drops
    _set_mask(attention, mask, MaskKind.DROPPED if drops else MaskKind.KEPT, fill)


def _set_mask(attention: Attention, mask: GraphNode, kind: MaskKind, fill: float) -> None:
    if attention.mask is not None:
        raise NotTransformed("it has two masks")
    attention.mask, attention.mask_kind, attention.fill = mask, kind, fill


def _is_upper(mask: GraphNode) -> bool:
    """Whether a mask is true above the diagonal and false elsewhere."""
    if name_of(mask) == "triu":
        return _number(mask.args[1:], 0) == 1 and _filled_with(mask.args[0]) == 1
    inner = _negated(mask)
    return inner is not None and _is_lower(inner)


def _is_lower(mask: GraphNode) -> bool:
    """Whether a mask is true on and below the diagonal and false elsewhere."""
    if name_of(mask) in ("to", "_to_copy", "clone"):
        return _is_lower(mask.args[0])
    return (
        name_of(mask) == "tril"
        and _number(mask.args[1:], 0) == 0
        and _filled_with(mask.args[0]) == 1
    )


def _negated(mask: GraphNode) -> Any:
    """Returns the mask a node negates (`~m`, `m == 0`)."""
    name = name_of(mask)
    if name in ("bitwise_not", "logical_not"):
        return mask.args[0]
    return mask.args[0] if name == "eq" and mask.args[1] == 0 else None


def _filled_with(node: GraphNode) -> float | None:
    name = name_of(node)
    if name in ("ones", "ones_like"):
        return 1.0
    return (
        float(node.args[1]) if name in ("full", "full_like") and not is_node(node.args[1]) else None
    )


def _number(arguments: Sequence[Any], default: int) -> Any:
    return arguments[0] if arguments else default


def _is_fill(value: object) -> bool:
    return not is_node(value) or name_of(value) in ("full", "scalar_tensor", "lift_fresh_copy")


def _fill_of(value: GraphNode | float) -> float:
    if not is_node(value):
        return float(cast(float, value))
    numbers = [a for a in value.args if isinstance(a, int | float)]
    if len(numbers) != 1:
        raise NotTransformed("what masked scores become is not known")
    return float(numbers[0])


# ------------------------------------------------------------------ products
def _is_product(node: GraphNode, form: str) -> bool:
    """Returns whether a node is a product of the form `qk,kd->qd`, in einsum notation without the
    shared axes.
    """
    name = name_of(node)
    if name in ("matmul", "bmm"):
        return form in ("qk,kd->qd", "qd,dk->qk")
    if name != "einsum" or len(node.args[1]) != 2:
        return False
    operands, _, out = str(node.args[0]).replace(" ", "").partition("->")
    first_subscripts, _, second_subscripts = operands.partition(",")
    expected_operands, _, result = form.partition("->")
    first, _, second = expected_operands.partition(",")
    if (first_subscripts[:-2], second_subscripts[:-2]) != (out[:-2], out[:-2]):
        return False
    # Map the pattern's letters to the einsum's: `qk,kd->qd` fits `bhij,bhjd->bhid` with q=i, k=j.
    names = dict(zip(first, first_subscripts[-2:], strict=True))
    names |= {k: v for k, v in zip(second, second_subscripts[-2:], strict=True) if k not in names}
    expected = tuple("".join(names[k] for k in part) for part in (first, second, result))
    return expected == (first_subscripts[-2:], second_subscripts[-2:], out[-2:]) and len(
        set(names.values())
    ) == len(names)


def _operands(node: GraphNode) -> tuple[Any, Any]:
    pair = node.args[1] if name_of(node) == "einsum" else node.args
    return pair[0], pair[1]


def _untransposed(node: GraphNode) -> Any:
    """Returns the operand of a transposition of the last two axes; None for other nodes."""
    rank = node.meta["val"].dim()
    if name_of(node) == "transpose" and {a % rank for a in node.args[1:3]} == {rank - 1, rank - 2}:
        return node.args[0]
    order = [*range(rank - 2), rank - 1, rank - 2]
    if name_of(node) == "permute" and [a % rank for a in node.args[1]] == order:
        return node.args[0]
    return node.args[0] if name_of(node) in ("mT", "t") else None


def _is_last(softmax: GraphNode) -> bool:
    rank = softmax.meta["val"].dim()
    return bool(softmax.args[1] % rank == rank - 1)


def is_node(value: object) -> TypeGuard[GraphNode]:
    """Returns whether an argument of an operator is a node, and not a number or list."""
    return hasattr(value, "users")


def _is_tensor(value: object) -> TypeGuard[GraphNode]:
    return is_node(value) and hasattr(value.meta.get("val"), "dtype")


def _is_boolean(node: GraphNode) -> bool:
    return str(node.meta["val"].dtype) == "torch.bool"

"""Replaces written-out attention, softmax(query key^T * scale + mask) value, by a single operator.

The operator is a flash kernel in a strict draft, and the library's `scaled_dot_product_attention` in a shared one. A
row without visible keys is NaN, as in the written softmax.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.functions.operators.attention import (
    AttentionForm,
    attention_operator,
    has_kernel,
    is_default_scale,
    uses_library,
)
from kernelwright.policies.inductor.graph_types import GraphNode, nodes_of
from kernelwright.policies.inductor.lowering.attention.constant_masks import is_causal_mask
from kernelwright.policies.inductor.lowering.attention.operands import ATTENTION_TARGET
from kernelwright.policies.inductor.lowering.attention.reading import (
    RESHAPES,
    NoAttention,
    Scores,
    are_equal,
    moves_nothing,
    name_of,
    read_scores,
    softmax_input,
    weighted_sum,
)

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

Operands = tuple[GraphNode, GraphNode, GraphNode]
"""Query, key and value of four axes: (batch, heads, rows, columns)."""
ABSORBING = -1e30
"""A number to which adding a score of fp32 changes nothing: such a filling may as well be added."""
MASKING = -1e4
"""Score offset that hides a key."""


def join_attention(graph: torch.fx.GraphModule, mode: FakeTensorMode, for_gpu: bool = True) -> None:
    """Replaces every written-out attention, and drops causal masks, in place.

    for_gpu: the draft is judged on a GPU. The library's attention on a CPU gives zeros where scores are NaN, which
    the written one does not, for which a draft with a call would be refused.
    """
    _share_sizes(graph)
    for node in nodes_of(graph):
        if name_of(node) == "div" and (for_gpu or not uses_library()):
            try:
                _join(graph, node, mode)
            except NoAttention:
                continue
    for node in nodes_of(graph):
        masked = (
            str(node.target) == ATTENTION_TARGET and node.args[3] is not None and not node.args[4]
        )
        if masked and is_causal_mask(node.args[3]):
            node.args = (*node.args[:3], None, True, *node.args[5:])
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _share_sizes(graph: torch.fx.GraphModule) -> None:
    """Reads every size from its first node, to keep sizes of scores from being users of scores."""
    first: dict[str, GraphNode] = {}
    for node in nodes_of(graph):
        expression = getattr(getattr(node.meta.get("val"), "node", None), "expr", None)
        if node.op == "call_function" and expression is not None:
            known = first.setdefault(f"{type(node.meta['val'])} {expression}", node)
            if known is not node:
                node.replace_all_uses_with(known)
    graph.graph.eliminate_dead_code()


def _join(graph: torch.fx.GraphModule, quotient: GraphNode, mode: FakeTensorMode) -> None:
    """Replaces the attention whose softmax ends in a quotient. Raises NoAttention."""
    weighted, value = weighted_sum(quotient)
    scores = read_scores(softmax_input(quotient))
    query, turned_key = scores.product.args[-2:]
    if scores.cap and uses_library():
        raise NoAttention
    writer = _Writer(graph, weighted, mode)
    operands = writer.operands(query, turned_key, value)
    scale: float | None = scores.scale
    if scores.sizes:
        factor = scores.scale
        for operation, number in scores.sizes:
            hint = float(number.meta["val"].node.hint)
            factor = factor * hint if operation == "mul" else factor / hint
        if not is_default_scale(factor, operands[0].meta["val"].shape[-1]):
            raise NoAttention
        scale = None
    form = AttentionForm(scale=scale, cap=scores.cap, fill=scores.fill, zero_rows=False)
    if not has_kernel(operands[0].meta["val"], operands[2].meta["val"]):
        raise NoAttention
    if len({operand.meta["val"].dtype for operand in operands}) != 1:
        raise NoAttention
    writer.write(operands, scores, form)


class _Writer:
    """Inserts operators before a node, with their values."""

    def __init__(
        self, graph: torch.fx.GraphModule, weighted: GraphNode, mode: FakeTensorMode
    ) -> None:
        self._graph, self._weighted, self._mode = graph, weighted, mode

    def call(self, operator: Any, *args: Any, **kwargs: Any) -> GraphNode:
        """Inserts an operator, and returns its node."""
        from torch.utils._pytree import tree_map

        def value(argument: object) -> Any:
            return argument.meta["val"] if hasattr(argument, "meta") else argument

        node: Any = self._graph.graph.call_function(operator, args, kwargs)
        with self._mode:
            node.meta["val"] = operator(*tree_map(value, list(args)), **tree_map(value, kwargs))
        return node

    def _size(self, size: int | torch.SymInt) -> GraphNode | int:
        """Returns a size as an argument of an operator: a number or a node. Raises NoAttention."""
        import torch

        if isinstance(size, int):
            return size
        for node in nodes_of(self._graph):
            if node is self._weighted:
                break
            value: Any = node.meta.get("val")
            if hasattr(value, "node") and are_equal((value,), (size,)):
                return node
            for axis, extent in enumerate(getattr(value, "shape", ())):
                if node.op == "placeholder" and are_equal((extent,), (size,)):
                    return self.call(torch.ops.aten.sym_size.int, node, axis)
        raise NoAttention

    def operands(self, query: GraphNode, turned_key: GraphNode, value: GraphNode) -> Operands:
        """Returns query, key and value of four axes: as they were before their batch axes were joined, if possible."""
        import torch

        aten = torch.ops.aten
        unjoined = [_four_axes(operand) for operand in (query, turned_key, value)]
        whole = [operand for operand in unjoined if operand is not None]
        heads = [operand.meta["val"].shape[:2] for operand in whole]
        with self._graph.graph.inserting_before(self._weighted):  # type: ignore[arg-type]
            if len(whole) == len(unjoined) and all(are_equal(h, heads[0]) for h in heads):
                query, turned_key, value = whole
            else:
                query, turned_key, value = (
                    self.call(aten.unsqueeze.default, operand, 1)
                    for operand in (query, turned_key, value)
                )
            key = _untransposed(turned_key)
            key = (
                key
                if key is not None
                else self.call(aten.permute.default, turned_key, [0, 1, 3, 2])
            )
        return query, key, value

    def write(self, operands: Operands, scores: Scores, form: AttentionForm) -> None:
        """Puts the operator in the place of the weighted sum."""
        import torch

        aten = torch.ops.aten
        query, key, value = operands
        with self._graph.graph.inserting_before(self._weighted):  # type: ignore[arg-type]
            mask, causal = self._mask(scores, operands)
            arguments = form.arguments(query, key, value, mask, causal)
            out = self.call(attention_operator(), *arguments)
            if uses_library() and mask is not None:
                out = self._with_empty_rows(out, mask)
            shape = self._weighted.meta["val"].shape
            for user in list(self._weighted.users):
                if name_of(user) in RESHAPES and are_equal(
                    user.meta["val"].shape, out.meta["val"].shape
                ):
                    user.replace_all_uses_with(out)
            if any(user.users or user.op == "output" for user in self._weighted.users):
                sizes = [self._size(n) for n in shape]
                flat = self.call(aten.reshape.default, out, sizes)
                self._weighted.replace_all_uses_with(flat)

    def _mask(self, scores: Scores, operands: Operands) -> tuple[GraphNode | None, bool]:
        """Returns the mask of four axes, and whether a causal one stands for it. Raises NoAttention."""
        import torch

        aten = torch.ops.aten
        seen = scores.seen
        alone = seen is not None and not scores.added and scores.fill <= MASKING
        if alone and is_causal_mask(seen, turned=scores.turned):  # type: ignore[arg-type]
            return None, True
        added = self._sum_of_masks(scores, operands)
        if seen is None:
            return added, False
        seen = self._on_four_axes(seen, operands)
        seen = self.call(aten.logical_not.default, seen) if scores.turned else seen
        if added is None and not uses_library():
            return seen, False
        # Instead of giving the hidden keys a score, it is added to theirs: the same only if it absorbs them.
        value = operands[0].meta["val"]
        fill = scores.fill
        if math.isfinite(fill):
            fill = max(fill, float(torch.finfo(value.dtype).min))
        if fill > ABSORBING:
            raise NoAttention
        options = {"dtype": value.dtype, "device": value.device}
        hidden = self.call(aten.full.default, [], fill, **options)
        zero = self.call(aten.full.default, [], 0.0, **options)
        return self.call(aten.where.self, seen, zero if added is None else added, hidden), False

    def _sum_of_masks(self, scores: Scores, operands: Operands) -> GraphNode | None:
        """Returns the sum of additive masks, each times its factor; None without any."""
        import torch

        aten = torch.ops.aten
        total = None
        for mask, factor in scores.added:
            mask = self._on_four_axes(mask, operands)
            if factor != 1.0:
                mask = self.call(aten.mul.Tensor, mask, factor)
            total = mask if total is None else self.call(aten.add.Tensor, total, mask)
        return total

    def _on_four_axes(self, mask: GraphNode, operands: Operands) -> GraphNode:
        """Returns a mask of (batch, heads, rows, columns). Raises NoAttention where it would have to be copied."""
        import torch

        aten = torch.ops.aten
        query, key, _ = operands
        batch, heads, rows, _ = query.meta["val"].shape
        shape = mask.meta["val"].shape
        # The operands have their heads as an axis, but the mask was added where heads and batch are joined.
        if len(shape) == 3:
            joined = are_equal(shape[:1], (batch * heads,))
            if joined and not are_equal((heads,), (1,)):
                sizes = [self._size(n) for n in (batch, heads, *shape[1:])]
                return self.call(aten.view.default, mask, sizes)
            mask = self.call(aten.unsqueeze.default, mask, 1 if joined else 0)
        while mask.meta["val"].dim() < 4:
            mask = self.call(aten.unsqueeze.default, mask, 0)
        full = (batch, heads, rows, key.meta["val"].shape[2])
        for size, extent in zip(mask.meta["val"].shape, full, strict=True):
            if not are_equal((size,), (1,)) and not are_equal((size,), (extent,)):
                raise NoAttention
        return mask

    def _with_empty_rows(self, out: GraphNode, mask: GraphNode) -> GraphNode:
        """Restores NaN for rows without visible keys, as in a written-out softmax; the library yields zeros."""
        import torch

        aten = torch.ops.aten
        largest = self.call(aten.amax.default, mask, [-1], True)
        empty = self.call(aten.eq.Scalar, largest, -math.inf)
        value = out.meta["val"]
        nan = self.call(aten.full.default, [], math.nan, dtype=value.dtype, device=value.device)
        return self.call(aten.where.self, empty, nan, out)


def _four_axes(node: GraphNode) -> GraphNode | None:
    """Returns the operand of four axes of which a batch of matrices is a view; None for another operand."""
    inner, after = node, node.meta["val"].shape
    while inner.meta["val"].dim() != 4:
        if not moves_nothing(inner):
            return None
        inner = inner.args[0]
    before = inner.meta["val"].shape
    if len(after) != 3 or not are_equal(before[2:], after[1:]):
        return None
    while name_of(inner) in ("clone", "expand"):
        if not are_equal(inner.args[0].meta["val"].shape, inner.meta["val"].shape):
            break
        inner = inner.args[0]
    return inner


def _untransposed(node: GraphNode) -> GraphNode | None:
    """Returns the operand of a transposition of the last two axes; None for other nodes."""
    return (
        node.args[0] if name_of(node) == "permute" and list(node.args[1]) == [0, 1, 3, 2] else None
    )

"""Matrix products without a library: Inductor's `tl.dot` kernels, and multiplication with a sum
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.decisions.deciding import decide
from kernelwright.policies.inductor.decisions.sites import operator_site
from kernelwright.policies.inductor.inductor_patches import size_hint
from kernelwright.policies.inductor.lowering.split_products import (
    can_split,
    is_column_major,
    split_product,
    worth_splitting,
)

if TYPE_CHECKING:
    import torch
    from torch._inductor.ir import TensorBox

MIN_ROWS_TO_TRANSPOSE = 128
"""Rows of the left operand, at the problem's own sizes, from which on the right operand is transposed first."""


def own_products(split: bool) -> None:
    """Replaces the lowerings of mm, bmm, addmm and baddbmm for the rest of this process.

    split: large ones of fp32 are made of parts.
    """
    import torch
    from torch._inductor.lowering import lowerings

    aten = torch.ops.aten
    for operator, left_axis, right_axis, axis in (
        (aten.mm.default, -1, 0, 1),
        (aten.bmm.default, -1, 1, 2),
    ):
        lowerings[operator] = _product(lowerings[operator], left_axis, right_axis, axis, split)
    lowerings[aten.addmm.default] = _with_base(aten.mm.default)
    lowerings[aten.baddbmm.default] = _with_base(aten.bmm.default)


def _product(
    by_dot: Callable[..., Any], left_axis: int, right_axis: int, axis: int, split: bool
) -> Any:
    """Returns a lowering by `tl.dot` if possible; otherwise elements are multiplied and summed
    along `axis`.

    `tl.dot` is impossible for sides of length 1 and for float64.
    """
    import torch
    from torch._inductor.kernel.mm_common import use_native_matmul
    from torch._inductor.lowering import lowerings

    aten = torch.ops.aten

    def lowered(a: TensorBox, b: TensorBox, **options: Any) -> Any:
        form = _product_form(a, b, split) if use_native_matmul(a, b) else "sum"
        # Large fp32 products run on tensor cores, in three parts.
        if form == "parts":
            return split_product(a, b)
        if form == "dot":
            _store_half_operands(a, b)
            return by_dot(a, copy_row_major(b) if _copies_right(a, b) else b, **options)
        wide_a, wide_b = (
            lowerings[aten.unsqueeze](a, left_axis),
            lowerings[aten.unsqueeze](b, right_axis),
        )
        return lowerings[aten.sum](lowerings[aten.mul](wide_a, wide_b), [axis])

    return lowered


def _product_form(a: TensorBox, b: TensorBox, split: bool) -> str:
    """Decides the form of a product that tl.dot can compute: `dot`, `parts` or `sum`."""
    forms = ["dot", "sum"]
    if split and can_split(a, b):
        forms.append("parts")
    default = "parts" if split and worth_splitting(a, b) else "dot"
    return decide("product", operator_site(), default, forms)


def _copies_right(a: TensorBox, b: TensorBox) -> bool:
    """Decides whether the right operand is copied to row-major order first."""
    if not is_column_major(b):
        return False
    default = "row_major" if is_worth_transposing(a, b) else "in_place"
    return decide("right", operator_site(), default, ("row_major", "in_place")) == "row_major"


def _store_half_operands(*operands: Any) -> None:
    """Writes operands of half precision to memory before their product reads them.

    Tensor cores read tiles copied to shared memory during the multiplication of the
    previous tile. An operand
    computed between load and product passes through registers, cannot be copied ahead, and is
    recomputed for every tile of
    columns: a gated layer of Llama took six times as long (H200, bfloat16).
    """
    import torch
    from torch._inductor.ir import IRNode

    half = [x for x in operands if x.get_dtype() in (torch.float16, torch.bfloat16)]
    computed = [x for x in half if not IRNode.is_realized_node(x.data)]
    if not computed:
        return
    form = decide("operands", operator_site(), "stored", ("stored", "computed"))
    for operand in computed if form == "stored" else ():
        operand.realize()


def is_worth_transposing(a: TensorBox, b: TensorBox) -> bool:
    """Returns whether the right fp32 operand should be copied to row-major order before the
    product.

    If the elements of a column are adjacent (x @ weight.T), the threads of a warp read 32 columns
    from one bank of shared
    memory, which takes three times as long as the product itself. With enough rows a copy is
    cheap in comparison.
    """
    import torch

    rows = size_hint(a.get_size()[-2])
    return b.get_dtype() == torch.float32 and rows >= MIN_ROWS_TO_TRANSPOSE and is_column_major(b)


def copy_row_major(b: TensorBox) -> Any:
    """A copy of a matrix, or of a batch of them, whose rows lie side by side."""
    from torch._inductor import ir

    row_major = ir.Pointwise.create(
        device=b.get_device(),
        dtype=b.get_dtype(),
        inner_fn=b.make_loader(),
        ranges=list(b.get_size()),
    )
    row_major.realize()
    ir.as_storage_and_layout(row_major, freeze=True, want_contiguous=True)
    return row_major


def _with_base(product: torch._ops.OpOverload) -> Any:
    """Computes base * beta + (a @ b) * alpha."""
    import torch
    from torch._inductor.lowering import lowerings

    aten = torch.ops.aten

    def lowered(
        base: TensorBox, a: TensorBox, b: TensorBox, *, beta: float = 1, alpha: float = 1
    ) -> Any:
        result = lowerings[product](a, b)
        result = result if alpha == 1 else lowerings[aten.mul](result, alpha)
        if beta == 0:
            return result
        return lowerings[aten.add](base if beta == 1 else lowerings[aten.mul](base, beta), result)

    return lowered

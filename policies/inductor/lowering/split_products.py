"""fp32 products as three products of float16 parts on tensor cores.

Each operand is scaled, and written once as a high part and a low part (the remainder). The
product of the two low
parts is below fp32's rounding and is omitted (Ootomo and Yokota 2022, arXiv:2203.03341). Parts of
bfloat16 would need
no scaling, but keep 16 bits of 24, and small products are refused for that error.

The scale is a power of two, so scaling is exact: per row if the summed axis is contiguous, and
per matrix otherwise.
Tensor cores truncate when adding, which over thousands of terms of equal sign loses a hundred
times fp32's error. So
the large part of every block of steps has a sum of its own, which is added to the total in fp32
(writing/products/parts.py).

Example of an element 1234.5678 scaled to 1.2056326: high = 1.2060547 (float16), low = -0.00042...
(float16).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from kernelwright.policies.inductor.inductor_patches import size_hint
from kernelwright.policies.inductor.lowering.geometry import create_reduction

if TYPE_CHECKING:
    import sympy
    from torch._inductor.ir import TensorBox

MIN_PRODUCTS_PER_ELEMENT = 100
"""Products an element of the operands, rows * columns / (rows + columns): below it, writing the parts takes longer than
tensor cores save (by an H100's 3 TB/s, 51 TFLOP/s of fp32 and three products at about 450 TFLOP/s).
"""
VECTOR_ELEMENTS = 8
"""Number of float16 elements copied at once; rows that begin in between are copied element by
element.
"""
MIN_PRODUCTS = 1 << 28
"""Smallest number of products at which splitting pays: below it the launches cost more than is saved."""
EXPONENT_OF_LARGEST = 13.0
"""Exponent of two the largest finite element is brought to; float16 ends at 15."""
MIN_EXPONENT = -100.0
"""The least exponent of two a scale has: its inverse is a number of fp32 too."""


def can_split(a: TensorBox, b: TensorBox) -> bool:
    """Whether a product is of fp32, and the rows of its parts can be copied in vectors."""
    import torch

    if a.get_dtype() != torch.float32 or b.get_dtype() != torch.float32:
        return False
    rows, depth = map(size_hint, a.get_size()[-2:])
    columns = size_hint(b.get_size()[-1])
    # Extents of the contiguous axes, which are copied in vectors.
    beside = [rows if is_column_major(a) else depth, depth if is_column_major(b) else columns]
    return not any(extent % VECTOR_ELEMENTS for extent in beside)


def worth_splitting(a: TensorBox, b: TensorBox) -> bool:
    """Whether a product of fp32 is large enough, at the problem's own sizes, for its operands to be split first."""
    if not can_split(a, b):
        return False
    *batch, rows, depth = map(size_hint, a.get_size())
    columns = size_hint(b.get_size()[-1])
    return (
        rows * columns >= MIN_PRODUCTS_PER_ELEMENT * (rows + columns)
        and math.prod(batch) * rows * columns * depth >= MIN_PRODUCTS
    )


def split_product(a: TensorBox, b: TensorBox) -> Any:
    """a @ b, of two or of three axes."""
    from torch._inductor import ir
    from torch._inductor.virtualized import ops

    left, right = _Parts(a, over=-1), _Parts(b, over=-2)
    *batch, rows, depth = a.get_size()
    ranges = [*batch, rows, b.get_size()[-1]]

    def inner(index: Sequence[sympy.Expr], step: Sequence[sympy.Expr]) -> Any:
        *matrix, row, column = index
        left_index, right_index = [*matrix, row, step[0]], [*matrix, step[0], column]
        # The two mixed products are small; writing/products/parts.py accumulates them apart from
        # the large one.
        small = ops.add(
            ops.dot(left.low(left_index), right.high(right_index)),
            ops.dot(left.high(left_index), right.low(right_index)),
        )
        return ops.add(small, ops.dot(left.high(left_index), right.high(right_index)))

    load = create_reduction("dot", a, ranges, [depth], inner).make_loader()

    def value(index: Sequence[sympy.Expr]) -> Any:
        *matrix, row, column = index
        return ops.mul(
            ops.mul(load(index), left.size([*matrix, row])), right.size([*matrix, column])
        )

    return ir.Pointwise.create(
        device=a.get_device(), dtype=a.get_dtype(), inner_fn=value, ranges=ranges
    )


class _Parts:
    """Returns high and low part of an operand, with its strides, and their scales."""

    def __init__(self, x: TensorBox, over: int) -> None:
        """over: the axis summed along, -1 or -2."""
        import torch
        from torch._inductor.virtualized import ops

        # Parts are computed from memory: an unrealized operand would be recomputed for each part.
        x.realize()
        self._turned = is_column_major(x)
        rows = (over == -2) == self._turned
        load, sizes = x.make_loader(), list(x.get_size())
        if self._turned:
            sizes[-2:] = sizes[:-3:-1]
        exponent = _exponents(x, lambda index: load(self._as_stored(index)), sizes, rows)

        def scaled(index: Sequence[sympy.Expr]) -> Any:
            inverse = ops.exp2(ops.neg(exponent(index[:-1] if rows else index[:-2])))
            return ops.mul(load(self._as_stored(index)), inverse)

        def high(index: Sequence[sympy.Expr]) -> Any:
            return ops.to_dtype(scaled(index), torch.float16, use_compute_types=False)

        def low(index: Sequence[sympy.Expr]) -> Any:
            remainder = ops.sub(scaled(index), ops.to_dtype(high(index), torch.float32))
            return ops.to_dtype(remainder, torch.float16, use_compute_types=False)

        self._high, self._low = (_written(x, sizes, value) for value in (high, low))
        self.size = lambda index: ops.exp2(exponent(index if rows else index[:-1]))

    def high(self, index: Sequence[sympy.Expr]) -> Any:
        """Returns the element at an index, rounded to float16."""
        return self._high(self._as_stored(index))

    def low(self, index: Sequence[sympy.Expr]) -> Any:
        """Returns the low part (the rounding error of the high part) of the element at an index."""
        return self._low(self._as_stored(index))

    def _as_stored(self, index: Sequence[sympy.Expr]) -> list[Any]:
        *batch, first, second = index
        return [*batch, second, first] if self._turned else list(index)


def _exponents(
    x: TensorBox, load: Callable[[Any], Any], sizes: list[Any], rows: bool
) -> Callable[[Any], Any]:
    """A loader of the exponents of two each row, or each matrix, is to be divided by."""
    import torch
    from torch._inductor import ir
    from torch._inductor.virtualized import ops

    def magnitude(index: Sequence[sympy.Expr], step: Sequence[sympy.Expr]) -> Any:
        size = ops.abs(load([*index, *step]))
        return ops.where(
            ops.lt(size, ops.constant(math.inf, torch.float32)),
            size,
            ops.constant(0.0, torch.float32),
        )

    largest = _largest(x, sizes[:-1], sizes[-1:], magnitude)
    if not rows:
        of_row = largest
        largest = _largest(x, sizes[:-2], sizes[-2:-1], lambda index, step: of_row([*index, *step]))

    def exponent(index: Sequence[sympy.Expr]) -> Any:
        least = ops.constant(2.0**MIN_EXPONENT, torch.float32)
        # Rounded down to a power of two, so that scaling is exact.
        whole = ops.floor(ops.log2(ops.maximum(largest(index), least)))
        return ops.sub(whole, ops.constant(EXPONENT_OF_LARGEST, torch.float32))

    exponents = ir.Pointwise.create(
        device=x.get_device(),
        dtype=torch.float32,
        inner_fn=exponent,
        ranges=sizes[: -1 if rows else -2],
    )
    exponents.realize()
    return exponents.make_loader()


def _largest(
    x: TensorBox, ranges: list[Any], steps: list[Any], value: Callable[..., Any]
) -> Callable[[Any], Any]:
    import torch
    from torch._inductor import ir

    maxima = ir.Reduction.create(
        device=cast("torch.device", x.get_device()), dst_dtype=torch.float32, src_dtype=torch.float32,
        inner_fn=value, ranges=ranges,
        reduction_ranges=steps, reduction_type="max",
    )  # fmt: skip
    maxima.realize()
    return maxima.make_loader()


def _written(x: TensorBox, sizes: list[Any], value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a loader of a contiguous float16 tensor."""
    import torch
    from torch._inductor import ir
    from torch._inductor.virtualized import ops

    tensor = ir.Pointwise.create(
        device=x.get_device(), dtype=torch.float16, inner_fn=value, ranges=sizes
    )
    tensor.realize()
    ir.as_storage_and_layout(tensor, freeze=True, want_contiguous=True)
    stored = tensor.make_loader()
    return lambda index: ops.to_dtype(stored(index), torch.float16, use_compute_types=False)


def is_column_major(x: TensorBox) -> bool:
    """Whether the elements of a column, not those of a row, lie side by side in memory."""
    from torch._inductor.virtualized import V

    try:
        stride = x.get_stride()
    except (AttributeError, NotImplementedError):  # not in memory yet
        return False
    is_equal = V.graph.sizevars.statically_known_equals
    return bool(is_equal(stride[-2], 1)) and not bool(is_equal(stride[-1], 1))

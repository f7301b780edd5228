"""The extents of a convolution, and how its operands lie in memory: channels side by side, so that whole vectors of
them are loaded at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from kernelwright.policies.inductor.window_sizes import window_size

if TYPE_CHECKING:
    import sympy
    import torch
    from torch._inductor.ir import TensorBox

MAX_UNROLLED_TERMS = 27
"""Largest number of terms written out: the size of a 3 x 3 x 3 window.

Written out, neighbouring elements are loaded together; a loop over the window would load each
window separately.
"""


Loader = Callable[[Sequence[Any]], Any]
"""Reads the element at an index (sympy expressions) while a kernel is generated."""


@dataclass(frozen=True)
class Geometry:
    """Sizes of a convolution; all lists have an entry per spatial axis."""

    batch: Any
    channels: Any
    """Input channels per group."""
    wide: Any
    """Output channels per group."""
    groups: Any
    size: list[Any]
    out: list[Any]
    kernel: list[Any]
    stride: list[Any]
    padding: list[Any]
    dilation: list[Any]
    reach: list[Any]
    """dilation * (kernel - 1)."""
    transposed: bool

    @property
    def axes(self) -> range:
        """The indices of the spatial axes."""
        return range(len(self.kernel))

    @property
    def depth(self) -> list[Any]:
        """Returns the ranges of the sum: channels of a group, then taps."""
        return [self.channels, *self.kernel]

    @property
    def steps(self) -> list[Any]:
        """Returns the ranges of the sum of a product, taps first: adjacent channels are then loaded
        together.
        """
        return [*self.kernel, self.channels]


def geometry(
    x: TensorBox,
    weight: TensorBox,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    extra: Sequence[int],
    groups: int | sympy.Expr,
) -> Geometry:
    """Returns the extents of a convolution, with an entry a spatial axis: strides, paddings and output sizes."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv

    batch, channels, *size = x.get_size()
    first, second, *kernel = weight.get_size()
    axes = range(len(kernel))
    stride, padding, dilation, extra = (
        list(v) * (len(kernel) // len(v)) for v in (stride, padding, dilation, extra)
    )
    reach = [dilation[i] * (kernel[i] - 1) for i in axes]
    if transposed:
        wide = second
        out = [(size[i] - 1) * stride[i] - 2 * padding[i] + reach[i] + extra[i] + 1 for i in axes]
    else:
        wide = FloorDiv(first, groups)
        out = [
            window_size(FloorDiv(size[i] + 2 * padding[i] - reach[i] - 1, stride[i]) + 1)
            for i in axes
        ]
    has_static_channels = not transposed and isinstance(second, int | sympy.Integer)
    return Geometry(
        batch,
        second if has_static_channels else FloorDiv(channels, groups),
        wide,
        groups,
        size,
        out,
        kernel,
        stride,
        padding,
        dilation,
        reach,
        transposed,
    )


def create_contiguous(x: TensorBox, sizes: list[Any], value: Callable[..., Any]) -> Loader:
    """Returns a loader of a new tensor with contiguous strides; value: of the element at the given places."""
    from torch._inductor import ir

    tensor = ir.Pointwise.create(
        device=x.get_device(),
        dtype=x.get_dtype(),
        inner_fn=lambda index: value(*index),
        ranges=sizes,
    )
    tensor.realize()
    ir.as_storage_and_layout(tensor, freeze=True, want_contiguous=True)
    return tensor.make_loader()


def channels_last(x: TensorBox) -> Loader:
    """A loader by the places of the tensor as it is (batch, channels, then the spatial axes), of a copy with its
    channels last in memory.
    """
    load = x.make_loader()
    batch, channels, *size = x.get_size()
    moved = create_contiguous(
        x, [batch, *size, channels], lambda n, *at: load([n, at[-1], *at[:-1]])
    )
    return lambda index: moved([index[0], *index[2:], index[1]])


def create_reduction(
    kind: Literal["sum", "dot"],
    x: TensorBox,
    ranges: list[Any],
    steps: list[Any],
    inner: Callable[..., Any],
) -> Any:
    """Creates a reduction of Inductor: `sum`, or `dot` for tl.dot. Sums of few terms are written
    out.
    """
    from torch._inductor import config, ir

    with config.patch(unroll_reductions_threshold=MAX_UNROLLED_TERMS + 1):
        reduction = ir.Reduction.create(
            device=cast("torch.device", x.get_device()), dst_dtype=x.get_dtype(), src_dtype=x.get_dtype(),
            inner_fn=inner, ranges=ranges,
            reduction_ranges=steps, reduction_type=kind,
        )  # fmt: skip
    if isinstance(reduction.data.data, ir.Reduction):  # type: ignore[attr-defined]
        reduction.realize()
    return reduction


def all_hold(tests: list[Any]) -> Any:
    """Whether all of some comparisons hold."""
    import torch
    from torch._inductor.virtualized import ops

    mask = None
    for test, left, right in tests:
        holds = test(ops.index_expr(left, torch.int64), ops.index_expr(right, torch.int64))
        mask = holds if mask is None else ops.and_(mask, holds)
    return mask


def bounds_of(position: sympy.Expr, size: sympy.Expr) -> list[Any]:
    """Returns comparisons for a position to be inside an axis."""
    import sympy
    from torch._inductor.virtualized import ops

    return [(ops.ge, position, sympy.S.Zero), (ops.lt, position, size)]


def unravel_index(flat: sympy.Expr, sizes: list[Any]) -> list[Any]:
    """Returns an index per size, the last one running fastest."""
    from torch.utils._sympy.functions import FloorDiv, ModularIndexing

    indices: list[Any] = []
    for n in reversed(sizes):
        indices.append(ModularIndexing(flat, 1, n) if len(indices) < len(sizes) - 1 else flat)
        flat = FloorDiv(flat, n)
    return indices[::-1]

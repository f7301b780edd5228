"""Convolutions without a library: an implicit matrix product, whose patches are read in place and never stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from kernelwright.policies.inductor.decisions.deciding import decide
from kernelwright.policies.inductor.decisions.sites import operator_site
from kernelwright.policies.inductor.inductor_patches import size_hint
from kernelwright.policies.inductor.lowering.geometry import (
    MAX_UNROLLED_TERMS,
    Geometry,
    all_hold,
    bounds_of,
    channels_last,
    create_contiguous,
    create_reduction,
    geometry,
    unravel_index,
)
from kernelwright.policies.inductor.lowering.phases import convolve_by_phases, has_phases
from kernelwright.policies.inductor.window_sizes import window_size

if TYPE_CHECKING:
    import sympy
    from torch._inductor.ir import TensorBox

    from kernelwright.policies.inductor.lowering.geometry import Loader

MIN_DOT = 16
"""The least side of a product by tl.dot: fewer output channels leave the rest of it idle."""


def own_convolutions() -> None:
    """Replaces the lowerings of convolution and of pooling with large windows, for the rest of this process."""
    import torch
    from torch._inductor import lowering

    aten = torch.ops.aten
    pool = lowering.lowerings[aten.avg_pool3d.default]
    lowering.lowerings[aten.convolution.default] = convolution
    lowering._maybe_layout_constraints[aten.convolution.default] = None
    lowering.lowerings[aten.avg_pool3d.default] = _average_pooling(pool)
    windowed_pooling()


def windowed_pooling() -> None:
    """Lets pooling round its windows up, and return symbolic sizes, for the rest of this process."""
    from torch._inductor import lowering

    if not hasattr(lowering.pooling_size, "plain"):
        lowering.pooling_size = _pooling_size(lowering.pooling_size)


def library_convolutions() -> None:
    """Lets library convolutions keep symbolic weight sizes and a symbolic number of groups.

    Inductor's lowering turns these into numbers for templates that are not used here.
    """
    import torch
    from torch._inductor import lowering
    from torch._inductor.kernel import conv
    from torch._inductor.virtualized import V

    windowed_pooling()
    plain = lowering.lowerings[torch.ops.aten.convolution.default]

    def lowered(*args: Any, **kwargs: Any) -> Any:
        sizes: Any = V.graph.sizevars
        # Inductor would replace symbolic weight sizes by numbers; only numeric sizes are guarded.
        guard = sizes.guard_int_seq
        sizes.guard_int_seq = lambda lengths: [
            n if getattr(n, "free_symbols", ()) else sizes.guard_int(n) for n in lengths
        ]
        *arguments, groups = args
        symbolic = not kwargs and bool(getattr(groups, "free_symbols", ()))
        layout = conv.conv_layout
        if symbolic:  # as a number, with a size of the weights, it would make a number of that
            node = sizes.shape_env.create_symintnode(groups, hint=size_hint(groups))
            conv.conv_layout = lambda *args, **named: layout(*args, **{**named, "groups": node})
        try:
            result = plain(*arguments, int(size_hint(groups)) if symbolic else groups, **kwargs)
        finally:
            sizes.guard_int_seq, conv.conv_layout = guard, layout
        if symbolic:
            _called_with(groups)
        return result

    lowering.lowerings[torch.ops.aten.convolution.default] = lowered


def _called_with(groups: sympy.Expr) -> None:
    """Puts a symbol in the place of the number of groups, in the last call of the library."""
    from torch._inductor.virtualized import V

    calls: list[Any] = [o for o in V.graph.operations if "groups" in getattr(o, "kwargs", {})]
    calls[-1].kwargs = {**calls[-1].kwargs, "groups": groups}


def convolution(
    x: TensorBox,
    weight: TensorBox,
    bias: TensorBox | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int | sympy.Expr,
) -> Any:
    """aten.convolution: (groups of) weights [channels, depth] by patches [depth, pixels], then the bias."""
    import sympy
    import torch
    from torch._inductor.lowering import lowerings as low
    from torch._inductor.virtualized import V

    aten = torch.ops.aten
    if batchless := len(x.get_size()) == len(weight.get_size()) - 1:
        x = low[aten.unsqueeze](x, 0)
    g = geometry(x, weight, stride, padding, dilation, transposed, output_padding, groups)
    for n in g.out:
        V.graph.sizevars.shape_env.evaluate_expr(
            sympy.Ge(n, 1)
        )  # the ranges of indices are then known not to be empty
    result = low[aten.view](_summed(g, x, weight), [g.batch, g.wide * g.groups, *g.out])
    if bias is not None:
        result = low[aten.add](result, low[aten.view](bias, [g.wide * g.groups, *[1] * len(g.out)]))
    return low[aten.squeeze](result, 0) if batchless else result


def _summed(g: Geometry, x: TensorBox, weight: TensorBox) -> Any:
    """Returns the sum over channels and taps, by `tl.dot` if no side of the product has length 1."""
    import sympy
    from torch._inductor.virtualized import V

    is_equal = V.graph.sizevars.statically_known_equals
    depth = sympy.prod(g.depth)
    # A sum of few terms into few channels is cheaper written out than padded to a tile of tl.dot.
    few = (
        isinstance(depth, int | sympy.Integer)
        and depth <= MAX_UNROLLED_TERMS
        and size_hint(g.wide) < MIN_DOT
    )
    forms = ["sum"]
    if not any(is_equal(sympy.prod(n), 1) for n in ([g.wide], g.depth, g.out)):
        forms += ["product"] + ["phases"] * has_phases(g)
    default = "sum" if few else forms[-1]
    form = decide("convolution", operator_site(), default, forms)
    if form == "sum":
        return create_reduction("sum", x, *_as_sum(g, x, weight))
    if form == "phases":
        return convolve_by_phases(g, x, weight)
    return create_reduction("dot", x, *_as_product(g, x, weight))


def _as_product(g: Geometry, x: TensorBox, weight: TensorBox) -> tuple[list[Any], list[Any], Any]:
    import sympy
    from torch._inductor.virtualized import V, ops
    from torch.utils._sympy.functions import FloorDiv, ModularIndexing

    load_x = _patch_loader(x)
    load_w = create_contiguous(x, [g.groups, g.wide, *g.kernel, g.channels], lambda group, m, *at: _weight(
        g, weight.make_loader(), group, m, at[-1], at[:-1]))  # fmt: skip
    # A batch axis of length 1 would make a three-dimensional product.
    alone = V.graph.sizevars.statically_known_equals(g.batch * g.groups, 1)
    ranges = [*([] if alone else [g.batch * g.groups]), g.wide, sympy.prod(g.out)]

    def inner(index: Sequence[sympy.Expr], step: Sequence[sympy.Expr]) -> Any:
        together, channel, pixel = ([sympy.S.Zero] if alone else []) + list(index)
        n, group = together, sympy.S.Zero
        if g.groups != 1:
            n, group = FloorDiv(together, g.groups), ModularIndexing(together, 1, g.groups)
        *taps, c = unravel_index(step[0], g.steps)
        patch = _patch(g, load_x, n, group, unravel_index(pixel, g.out), c, taps)
        return ops.dot(load_w([group, channel, *taps, c]), patch)

    return ranges, [sympy.prod(g.steps)], inner


def _patch_loader(x: TensorBox) -> Loader:
    """Decides how a product reads its input: from a copy with channels side by side, or from the input as it lies."""
    forms = ("channels_last", "in_place")
    if decide("patches", operator_site(), "channels_last", forms) == "channels_last":
        return channels_last(x)
    x.realize()
    return x.make_loader()


def _as_sum(g: Geometry, x: TensorBox, weight: TensorBox) -> tuple[list[Any], list[Any], Any]:
    from torch._inductor.virtualized import ops
    from torch.utils._sympy.functions import FloorDiv, ModularIndexing

    load_x, load_w = x.make_loader(), weight.make_loader()

    def inner(index: Sequence[sympy.Expr], reduced: Sequence[sympy.Expr]) -> Any:
        n, channel, *pixel = index
        group, m = FloorDiv(channel, g.wide), ModularIndexing(channel, 1, g.wide)
        c, *taps = reduced
        return ops.mul(
            _weight(g, load_w, group, m, c, taps), _patch(g, load_x, n, group, pixel, c, taps)
        )

    return [g.batch, g.wide * g.groups, *g.out], g.depth, inner


def _weight(
    g: Geometry,
    load: Loader,
    group: sympy.Expr,
    m: sympy.Expr,
    c: sympy.Expr,
    taps: Sequence[sympy.Expr],
) -> Any:
    first = c + group * g.channels if g.transposed else m + group * g.wide
    return load([first, m if g.transposed else c, *taps])


def _patch(
    g: Geometry,
    load: Loader,
    n: sympy.Expr,
    group: sympy.Expr,
    pixel: Sequence[sympy.Expr],
    c: sympy.Expr,
    taps: Sequence[sympy.Expr],
) -> Any:
    """Returns the input at the position of a tap and pixel, and zero outside."""
    from torch._inductor.virtualized import ops
    from torch.utils._sympy.functions import Identity

    positions, tests = (_transposed_places if g.transposed else _tap_positions)(g, pixel, taps)
    input_index = [n, c + group * g.channels, *positions]
    if not tests:
        return load(input_index)
    return ops.masked(all_hold(tests), lambda: load([Identity(v) for v in input_index]), 0.0)


def _tap_positions(
    g: Geometry, pixel: Sequence[sympy.Expr], taps: Sequence[sympy.Expr]
) -> tuple[list[Any], list[Any]]:
    """Returns the positions a tap reads, and comparisons for their being inside."""
    positions = [pixel[i] * g.stride[i] - g.padding[i] + taps[i] * g.dilation[i] for i in g.axes]
    return positions, [
        test for i in g.axes if g.padding[i] != 0 for test in bounds_of(positions[i], g.size[i])
    ]


def _transposed_places(
    g: Geometry, pixel: Sequence[sympy.Expr], taps: Sequence[sympy.Expr]
) -> tuple[list[Any], list[Any]]:
    import sympy
    from torch._inductor.virtualized import ops
    from torch.utils._sympy.functions import FloorDiv, ModularIndexing

    positions, tests = [], []
    for i in g.axes:
        # Shift by a multiple of the stride, so that the division never rounds a negative number.
        shift = FloorDiv(g.reach[i] + g.stride[i] - 1, g.stride[i])
        far = pixel[i] + g.padding[i] - taps[i] * g.dilation[i] + shift * g.stride[i]
        positions.append(FloorDiv(far, g.stride[i]) - shift)
        if g.stride[i] != 1:
            tests.append((ops.eq, ModularIndexing(far, 1, g.stride[i]), sympy.S.Zero))
        tests += bounds_of(positions[i], g.size[i])
    return positions, tests


def _average_pooling(pool: Callable[..., Any]) -> Any:
    """Large windows, which Inductor leaves to the library, become a convolution of each plane with equal weights."""
    import sympy
    import torch
    from torch._inductor.lowering import lowerings as low

    aten = torch.ops.aten

    def lowered(
        x: TensorBox,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        kernel: list[Any]
        pads: list[Any]
        kernel, pads = (
            [*v] * (3 // len(v)) if isinstance(v, list | tuple) else [v] * 3
            for v in (kernel_size, padding)
        )
        if (
            math.prod(kernel) <= 25
            or ceil_mode
            or divisor_override
            or (any(pads) and not count_include_pad)
        ):
            return pool(
                x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
            )
        *planes, depth, height, width = x.get_size()
        weight = low[aten.full](
            [1, 1, *kernel], 1 / math.prod(kernel), dtype=x.get_dtype(), device=x.get_device()
        )
        x = low[aten.view](x, [sympy.prod(planes), 1, depth, height, width])
        averaged = convolution(
            x,
            weight,
            None,
            cast("Sequence[int]", stride or kernel),
            cast("Sequence[int]", pads),
            [1],
            False,
            [0],
            1,
        )
        return low[aten.view](averaged, [*planes, *averaged.get_size()[2:]])

    return lowered


def _pooling_size(plain: Callable[..., Any]) -> Any:
    """Returns Inductor's pooling size with windows rounded up without a case distinction.

    Inductor asks whether rounding up makes a difference, and the answer would hold for a single
    size only.
    """
    import sympy
    from torch.utils._sympy.functions import FloorDiv

    def pooling_size(
        x: int | sympy.Expr,
        i: int,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        *,
        dilation: Sequence[int] | None = None,
    ) -> tuple[Any, bool]:
        reach = (dilation or [1] * len(padding))[i] * (kernel_size[i] - 1)
        is_static = all(isinstance(v, int | sympy.Integer) for v in (reach, stride[i], padding[i]))
        if (
            not ceil_mode
            or isinstance(x, int | sympy.Integer)
            or not is_static
            or padding[i] + stride[i] > reach + 1
        ):
            size, rounded = plain(x, i, kernel_size, stride, padding, ceil_mode, dilation=dilation)
            return window_size(size), rounded
        return window_size(
            FloorDiv(x + 2 * padding[i] - reach + 2 * (stride[i] - 1), stride[i])
        ), True

    pooling_size.plain = plain  # type: ignore[attr-defined]
    return pooling_size

"""Strided transposed convolutions, phase by phase.

Output pixels whose positions have equal remainders by the strides (a phase) meet the same taps.
Each phase is a product
with only those taps; a single product over all taps would mostly multiply by zero.

Example in one dimension with stride 2, kernel 4, padding 0: even pixels (phase 0) meet taps 0 and
2, odd pixels
(phase 1) taps 1 and 3. Two products over two taps replace a product over four.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.lowering.geometry import (
    Geometry,
    all_hold,
    bounds_of,
    channels_last,
    create_contiguous,
    create_reduction,
    unravel_index,
)

if TYPE_CHECKING:
    import sympy
    from torch._inductor.ir import TensorBox

    from kernelwright.policies.inductor.lowering.geometry import Loader


def has_phases(g: Geometry) -> bool:
    """Returns whether a convolution is transposed with numeric strides, at least one above 1."""
    import sympy

    is_static = all(isinstance(n, int | sympy.Integer) for n in [*g.stride, *g.kernel, *g.padding])
    return (
        g.transposed
        and is_static
        and any(n != 1 for n in g.stride)
        and all(n == 1 for n in g.dilation)
    )


def convolve_by_phases(g: Geometry, x: TensorBox, weight: TensorBox) -> Any:
    """The convolution [batch, channels, *out]. Axis by axis, with a stride s, padding p and a phase r: the pixel
    s * q + r meets the taps s * j + (r + p) % s, and reads the input at q + (r + p) // s - j.
    """
    import sympy
    from torch._inductor.virtualized import ops
    from torch.utils._sympy.functions import FloorDiv, Identity, ModularIndexing

    # Per axis: the largest number of taps of a phase, and the number of pixels of a phase.
    taps = [-(-int(k) // int(s)) for k, s in zip(g.kernel, g.stride, strict=True)]
    quotients = [FloorDiv(n + s - 1, s) for n, s in zip(g.out, g.stride, strict=True)]
    phases, steps = sympy.prod(g.stride), [*taps, g.channels]
    load_x = channels_last(x)
    load_w = create_contiguous(
        x, [g.groups, phases, g.wide, *steps], _weights(g, weight.make_loader())
    )

    def inner(index: Sequence[sympy.Expr], step: Sequence[sympy.Expr]) -> Any:
        together, channel, pixel = index
        image, phase = (
            FloorDiv(together, phases),
            unravel_index(ModularIndexing(together, 1, phases), g.stride),
        )
        group = ModularIndexing(image, 1, g.groups) if g.groups != 1 else sympy.S.Zero
        *j, c = unravel_index(step[0], steps)
        q = unravel_index(pixel, quotients)
        positions = [q[i] + FloorDiv(phase[i] + g.padding[i], g.stride[i]) - j[i] for i in g.axes]
        input_index = [FloorDiv(image, g.groups), c + group * g.channels, *positions]
        tests = [test for i in g.axes for test in bounds_of(positions[i], g.size[i])]
        mask = all_hold([*tests, *_tap_bounds(g, _taps(g, phase, j))])
        patch = ops.masked(mask, lambda: load_x([Identity(v) for v in input_index]), 0.0)
        return ops.dot(load_w([group, ModularIndexing(together, 1, phases), channel, *j, c]), patch)

    ranges = [g.batch * g.groups * phases, g.wide, sympy.prod(quotients)]
    reduction = create_reduction("dot", x, ranges, [sympy.prod(steps)], inner)
    return _interleaved(g, reduction, quotients)


def _weights(g: Geometry, load: Loader) -> Any:
    """Returns the taps of each phase, and zero for missing taps."""
    from torch._inductor.virtualized import ops
    from torch.utils._sympy.functions import Identity

    def value(group: sympy.Expr, together: sympy.Expr, m: sympy.Expr, *at: Any) -> Any:
        *j, c = at
        phase = unravel_index(together, g.stride)
        taps = _taps(g, phase, j)
        weight_index = [c + group * g.channels, m, *taps]
        if not (tests := _tap_bounds(g, taps)):
            return load(weight_index)
        return ops.masked(all_hold(tests), lambda: load([Identity(v) for v in weight_index]), 0.0)

    return value


def _taps(g: Geometry, phase: list[Any], j: list[Any]) -> list[Any]:
    from torch.utils._sympy.functions import ModularIndexing

    return [
        j[i] * g.stride[i] + ModularIndexing(phase[i] + g.padding[i], 1, g.stride[i])
        for i in g.axes
    ]


def _tap_bounds(g: Geometry, taps: list[Any]) -> list[Any]:
    """Returns comparisons for a tap to exist in the kernel.

    A phase may have fewer taps than another; operands of missing taps must not be loaded, since
    they may be NaN.
    """
    import sympy
    from torch._inductor.virtualized import ops

    return [
        (ops.lt, taps[i], sympy.sympify(g.kernel[i]))
        for i in g.axes
        if g.kernel[i] % g.stride[i] != 0
    ]


def _interleaved(g: Geometry, product: TensorBox, quotients: list[Any]) -> Any:
    """Returns the phases interleaved as an image, read in place by the next operators."""
    import sympy
    from torch._inductor import ir
    from torch.utils._sympy.functions import FloorDiv, ModularIndexing

    load, phases = product.make_loader(), sympy.prod(g.stride)

    def value(index: Sequence[sympy.Expr]) -> Any:
        n, channel, *pixel = index
        group, m = FloorDiv(channel, g.wide), ModularIndexing(channel, 1, g.wide)
        phase, flat = sympy.S.Zero, sympy.S.Zero
        for i in g.axes:
            phase = phase * g.stride[i] + ModularIndexing(pixel[i], 1, g.stride[i])
            flat = flat * quotients[i] + FloorDiv(pixel[i], g.stride[i])
        return load([(n * g.groups + group) * phases + phase, m, flat])

    return ir.Pointwise.create(
        device=product.get_device(),
        dtype=product.get_dtype(),
        inner_fn=value,
        ranges=[g.batch, g.wide * g.groups, *g.out],
    )

"""Tolerance of an output: eager's own error against float64, times a small factor, plus a few ulps
of the row's scale.

A fixed `allclose` fails in both directions: honest fp32 at K = 65,536 fails 1e-4, and tf32 on
`torch.rand` passes. Here the problem's arithmetic determines the tolerance. With r the float64
reference, e eager's output in the problem's own precision and c the candidate's, for each row:

    scale     = max |r| in the row, at least 1/1000 of the RMS of all of r
    noise     = max(max |e - r| in the row, q99 over the rows of (max |e - r| / scale) * scale)
    tolerance = factor * noise + ulps * scale

and over the whole output: rms(c - r) <= factor * rms(e - r) + rms_ulps * rms(r).

Without a float64 reference e stands in for r, its error on another draw for the noise, and the
factor grows by 1. A candidate beyond this tolerance is measured once more with the noise raised to
the deviation of the reference on inputs moved by an ulp (expected/perturbed_outputs.py).

Example: a row of an fp32 output with max |r| = 2 and max |e - r| = 3e-7, where q99 gives less, has
scale 2, noise 3e-7 and tolerance 8 * 3e-7 + 64 * 2**-23 * 2 = 1.8e-5.

The constants (bench/tolerance.py measures them over honest variants and cheats):

- fp32: factor 8, 64 eps. tl.exp is ex2.approx of a rounded product: 44 eps at |x| = 88; sequential sums of 65,536 terms
  stay under 60 eps of their scale; tf32 and fp16 operands leave 2,400 eps for any K, bf16 20,000, int8 100,000.
- fp16, bf16: factor 4, 2 eps of the output's own dtype per element and a quarter of an eps in the RMS: a single
  rounding leaves 0.22 eps RMS, fp8 and int8 operands leave over 1.6 eps of bf16.
- A sum over `depth` inputs in sequential blocks of 256 (also by atomics) drifts by 0.12 eps * sqrt(depth / 256):
  three times this is added.

A row is the last dimension, joined with those before until 32 elements are reached; a 1-D output is
a single row.

A row of different numbers contains large ones. With constant rows (the draw `constant_rows`), some
lie next to a zero of the function: tanh by exp or a sigmoid, exp(x) - 1 and log(1 + x) deviate
there by half an ulp of 1, beyond any factor of the row. There the scale is at least 1/4 of the RMS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kernelwright.tools.report import Number, Value

if TYPE_CHECKING:
    import torch


ROW_ELEMENTS = 32
MAX_SCALED_ROWS = 1 << 22
SCALE_FLOOR = 1e-3
# Rounding errors of equal numbers drift one way: with SCALE_FLOOR, the usual forms of tanh, elu and log1p were refused.
CONSTANT_FLOOR = 1 / 4
"""Scale floor for inputs with constant rows."""
MIN_SCALE_OF_TINY_ROWS = 1 / 32
"""Minimum scale of a row if every input is near zero."""
FP32_EPS = 2.0**-23
FP32_ULPS = 64.0
SUM_BLOCK = 256
Tensor = Any
"""torch.Tensor, named without importing torch."""


class Allowance(Value):
    """Constants for an output dtype, relative to the row's scale."""

    factor: Number
    ulps: Number
    rms_ulps: Number
    floor: Number = SCALE_FLOOR
    """Minimum scale of a row, relative to the RMS of the output."""
    least: Number = 0.0
    """Minimum scale of a row, independent of the output."""


class Tolerance(Value):
    """Eager's own error on a draw, carried to draws without a float64 reference."""

    row: Number = 0.0
    """q99 over the rows of max |e - r| / scale."""
    rms: Number = 0.0
    """rms(e - r) / rms(r)."""

    def joined(self, other: Tolerance | None) -> Tolerance:
        """Returns the larger of both: an output of a few elements may have a small eager error by
        chance."""
        return (
            self
            if other is None
            else Tolerance(row=max(self.row, other.row), rms=max(self.rms, other.rms))
        )


def allowance(
    dtype: torch.dtype, depth: int = 1, *, constant_rows: bool = False, tiny: bool = False
) -> Allowance:
    """Returns the constants for an output of `dtype` whose elements each sum over `depth` input
    elements.

    constant_rows: for inputs with constant rows. tiny: for inputs near zero, at which the usual
    forms of elu, expm1 and log1p deviate by half an ulp of 1.
    """
    import torch

    if not dtype.is_floating_point:
        return Allowance(factor=1.0, ulps=0.0, rms_ulps=0.0)
    eps = torch.finfo(dtype).eps
    floor, least = (
        (CONSTANT_FLOOR if constant_rows else SCALE_FLOOR),
        (MIN_SCALE_OF_TINY_ROWS if tiny else 0.0),
    )
    steps = FP32_ULPS + 0.35 * math.sqrt(depth / SUM_BLOCK) if depth > SUM_BLOCK else FP32_ULPS
    if eps <= FP32_EPS:
        return Allowance(
            factor=8.0, ulps=steps * eps, rms_ulps=steps * eps, floor=floor, least=least
        )
    single = steps * FP32_EPS
    return Allowance(
        factor=4.0, ulps=2 * eps + single, rms_ulps=eps / 4 + single, floor=floor, least=least
    )


def rows_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """Returns (rows, columns) in which an output of `shape` is judged."""
    total = math.prod(shape)
    if len(shape) < 2 or not total:
        return 1, total
    columns = 1
    for size in reversed(shape):
        columns *= size
        if columns >= ROW_ELEMENTS and total // columns <= MAX_SCALED_ROWS:
            break
    return total // columns, columns


def tiles(rows: int, columns: int, device: str) -> Iterator[tuple[slice, slice]]:
    """Yields tiles of a (rows, columns) matrix: at most 64M elements each on a GPU, 4M on a CPU."""
    limit = (1 << 26) if device == "cuda" else (1 << 22)
    height, width = max(1, limit // max(columns, 1)), min(columns, limit)
    for top in range(0, rows, height):
        for left in range(0, columns, max(width, 1)):
            yield slice(top, min(top + height, rows)), slice(left, min(left + width, columns))


def as_rows(tensor: Tensor, rows: int, columns: int) -> Tensor:
    """Returns a (rows, columns) view; a copy if required by the layout.

    Complex numbers must be converted to pairs before (`real_parts`).
    """
    return tensor.detach().reshape(rows, columns)


def widened(tensor: Tensor) -> Tensor:
    """Converts a float8 tensor to float32, and an unsigned tensor to signed integers, since torch
    has few operators for them.

    Other tensors are returned unchanged. 64-bit integers keep their bits: the upper half becomes
    negative.
    """
    import torch

    if is_float8(tensor.dtype):
        return tensor.float()
    if tensor.dtype == torch.uint64:
        return tensor.view(torch.int64)
    signed = {torch.uint16: torch.int32, torch.uint32: torch.int64}.get(tensor.dtype)
    return tensor if signed is None else tensor.to(signed)


def is_float8(dtype: torch.dtype) -> bool:
    """Returns True for torch's floating types of a single byte."""
    return bool(dtype.is_floating_point and dtype.itemsize == 1)


def real_parts(tensor: Tensor) -> Tensor:
    """Returns a tensor that can be compared element by element: pairs for complex numbers,
    otherwise as `widened`."""
    import torch

    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else widened(tensor)


def all_close(eager: Tensor, candidate: Tensor, tolerance: float) -> Tensor:
    """Returns a boolean tensor: all elements are close by torch.isclose with atol = rtol =
    tolerance.

    On a CPU, differences within atol alone are recognised first, by a quarter of the operators.
    """
    import torch

    if not eager.is_cuda and eager.is_floating_point() and eager.numel():
        within = (eager - candidate).abs_().amax() <= tolerance
        if bool(within):
            return within
    return torch.isclose(eager, candidate, atol=tolerance, rtol=tolerance).all()


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Returns |a - b| in float64: 0 for equal infinities or two NaN, infinite if only one is finite
    or NaN.

    Different integers have a distance of at least 1.
    """
    import torch

    gap = (a.double() - (b.double() if b.dtype == torch.bool else b)).abs_()
    if not (a.is_floating_point() or b.is_floating_point()):
        gap.clamp_(min=1.0)  # 2**62 and 2**62 + 1 are one number in float64
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    return torch.where(same, 0.0, gap).nan_to_num_(nan=math.inf, posinf=math.inf)


def perturb(
    inputs: list[Any],
    seed: int,
    ulps: int = 4,
    half_ulps: int | None = None,
    *,
    by_rows: bool = False,
    mirrored: bool = False,
) -> list[Any]:
    """Returns the inputs with floating tensors moved by up to `ulps` units in the last place; zeros
    stay zero.

    The reference's outputs on them are passed to `measure` as `perturbed`. Each element moves
    independently, so that equal elements separate and a variance of 0 does not persist. by_rows:
    each row (along the last dimension) moves as a whole. Equal terms of a sum are all rounded
    alike: a sum of n such terms drifts by up to n / 4 units in its last place, n different terms by
    about sqrt(n) / 4, and independently moved terms by less. half_ulps: replaces `ulps` for 16-bit
    inputs. mirrored: reverses all moves, so that the two runs of a seed resolve a tie to both
    sides.
    """
    factors = _factors_near_one(ulps, half_ulps, mirrored)
    return [_multiply_floats(value, seed, factors, by_rows=by_rows) for value in inputs]


def _factors_near_one(
    ulps: int, half_ulps: int | None, mirrored: bool
) -> Callable[[Tensor, Any], Tensor]:
    import torch

    def factors(piece: Tensor, generator: torch.Generator) -> Tensor:
        most = half_ulps if half_ulps is not None and piece.itemsize < 4 else ulps
        steps = torch.randint(
            -most, most + 1, piece.shape, generator=generator, device=piece.device, dtype=torch.int8
        )
        moves = steps.to(piece.dtype) * torch.finfo(piece.dtype).eps
        return 1 - moves if mirrored else 1 + moves

    return factors


def scale_towards_zero(inputs: list[Any], seed: int, share: float = 1 / 64) -> list[Any]:
    """Returns the floating inputs with each element scaled towards zero by up to `share`.

    Changes all roundings, and keeps every element in its domain ([0, 1], an index).
    """
    import torch

    def factors(piece: Tensor, generator: torch.Generator) -> Tensor:
        return 1 - share * torch.rand(
            piece.shape, generator=generator, device=piece.device, dtype=piece.dtype
        )

    return [_multiply_floats(v, seed, factors) for v in inputs]


def with_other_strides(inputs: list[Any], *, spread: bool) -> list[Any]:
    """Returns the inputs with other strides, so that torch adds in another order.

    The dimensions are reversed, or (`spread`) every element is followed by a gap. Values without a
    dimension are unchanged.
    """
    import torch

    def laid_out(value: object) -> Any:
        if not isinstance(value, torch.Tensor) or not value.dim():
            return value
        if spread:
            wide = torch.empty((*value.shape, 2), dtype=value.dtype, device=value.device)
            return wide[..., 0].copy_(value)
        order = tuple(reversed(range(value.dim())))
        return value.permute(order).contiguous().permute(order)

    return [laid_out(value) for value in inputs]


def _multiply_floats(
    value: object, seed: int, factors: Callable[[Tensor, Any], Tensor], by_rows: bool = False
) -> Any:
    """Multiplies a floating tensor by factors drawn for each piece or row; other values are
    returned unchanged."""
    import torch

    if (
        not isinstance(value, torch.Tensor)
        or not value.is_floating_point()
        or is_float8(value.dtype)
    ):
        return value  # the next number of a float8 type is no small step
    generator = torch.Generator(device=value.device).manual_seed(seed)
    out = value.clone(memory_format=torch.contiguous_format)
    if by_rows and out.dim():
        return out.mul_(factors(out[..., :1], generator))
    flat = out.view(-1)
    for start in range(0, flat.numel(), 1 << 26):
        piece = flat[start : start + (1 << 26)]
        piece.mul_(factors(piece, generator))
    return out

"""How wrong a number may be: eager's own error against float64, times a small factor, plus a few ulps of the row's
scale.

A fixed `allclose` does neither half of its work: honest fp32 at K = 65,536 fails 1e-4, and tf32 on `torch.rand` passes
it. Here the arithmetic of the problem says what is allowed. With r the float64 reference, e eager's output in the
problem's own precision and c the candidate's, for each row:

    scale     = max |r| in the row, at least 1/1000 of the RMS of all of r
    noise     = max(max |e - r| in the row, q99 over the rows of (max |e - r| / scale) * scale)
    tolerance = factor * noise + ulps * scale

and over the whole output: rms(c - r) <= factor * rms(e - r) + rms_ulps * rms(r).

The figures (bench/tolerance.py measures them over honest variants and cheats):

- fp32: factor 8, 64 eps. tl.exp is ex2.approx of a rounded product: 44 eps at |x| = 88; sequential sums of 65,536 terms
stay under 60 eps of their scale;
  tf32 and fp16 operands leave 2,400 eps whatever K is, bf16 20,000, int8 100,000.
- fp16, bf16: factor 4, 2 eps of the output's own dtype an element and a quarter of an eps in the RMS: one rounding
leaves 0.22 eps RMS, fp8 and int8
  operands leave over 1.6 eps of bf16.
- A sum over `depth` inputs in blocks of 256 added one after the other (atomics too) walks 0.12 eps * sqrt(depth / 256):
three times that is allowed on top.

A row is the last dimension, joined with those before it until it holds 32 elements; a 1-D output is one row.

A row of different numbers has large ones among them. Where every row is one number (the draw `constant_rows`), some lie
next to a zero of the function: tanh by exp or a sigmoid, exp(x) - 1 and log(1 + x) are off there by half an ulp of 1,
which no factor of the row allows. There the scale is at least 1/4 of the RMS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from kernelwright.tools.report import Number, Value

ROW_ELEMENTS = 32
MAX_ROWS = 1 << 22
SCALE_FLOOR = 1e-3
CONSTANT_FLOOR = 1 / 4
"""The same where every row is one number."""
MIN_SCALE_OF_TINY_ROWS = 1 / 32
"""The least scale of a row where every input is near zero."""
FP32_EPS = 2.0**-23
FP32_ULPS = 64.0
SUM_BLOCK = 256
Tensor = Any
"""torch.Tensor, named without importing torch."""


class Allowance(Value):
    """The constants for one output dtype, relative to the row's scale."""

    factor: Number
    ulps: Number
    rms_ulps: Number
    floor: Number = SCALE_FLOOR
    """The least scale of a row, relative to the RMS of the output."""
    least: Number = 0.0
    """The least scale of a row, whatever the output is."""


class Tolerance(Value):
    """What eager's own error was on one draw; carried to a draw for which no float64 reference is at hand."""

    row: Number = 0.0
    """q99 over the rows of max |e - r| / scale."""
    rms: Number = 0.0
    """rms(e - r) / rms(r)."""

    def joined(self, other: Tolerance | None) -> Tolerance:
        """The larger of both: for outputs of a few elements, where one draw's eager error may be small by luck."""
        return (
            self
            if other is None
            else Tolerance(row=max(self.row, other.row), rms=max(self.rms, other.rms))
        )


def allowance(
    dtype: Any, depth: int = 1, *, constant_rows: bool = False, tiny: bool = False
) -> Allowance:
    """For an output of `dtype` of which each element sums over `depth` input elements.

    `constant_rows`: of inputs whose rows are one number each.

    `tiny`: of inputs near zero, where the usual forms of elu, expm1 and log1p are off by half an ulp of 1.
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
    """(rows, columns) that an output of `shape` is judged in."""
    total = math.prod(shape)
    if len(shape) < 2 or not total:
        return 1, total
    columns = 1
    for size in reversed(shape):
        columns *= size
        if columns >= ROW_ELEMENTS and total // columns <= MAX_ROWS:
            break
    return total // columns, columns


def tiles(rows: int, columns: int, device: str) -> Iterator[tuple[slice, slice]]:
    """Pieces of a (rows, columns) matrix: at most 64M elements each on a GPU, 4M on a CPU."""
    limit = (1 << 26) if device == "cuda" else (1 << 22)
    height, width = max(1, limit // max(columns, 1)), min(columns, limit)
    for top in range(0, rows, height):
        for left in range(0, columns, max(width, 1)):
            yield slice(top, min(top + height, rows)), slice(left, min(left + width, columns))


def as_rows(tensor: Tensor, rows: int, columns: int) -> Tensor:
    """A (rows, columns) view; a copy where the layout needs one.

    Complex numbers become pairs beforehand (`real_parts`).
    """
    return tensor.detach().reshape(rows, columns)


def widened(tensor: Tensor) -> Tensor:
    """Returns float32 of a float8 tensor and signed numbers of an unsigned one, for which torch has next to no
    operators; every other tensor as it is. Numbers of 64 bits keep their bits: the upper half becomes negative.
    """
    import torch

    if is_float8(tensor.dtype):
        return tensor.float()
    if tensor.dtype == torch.uint64:
        return tensor.view(torch.int64)
    signed = {torch.uint16: torch.int32, torch.uint32: torch.int64}.get(tensor.dtype)
    return tensor if signed is None else tensor.to(signed)


def is_float8(dtype: Any) -> bool:
    """Whether it is one of torch's floating types of one byte."""
    return bool(dtype.is_floating_point and dtype.itemsize == 1)


def real_parts(tensor: Tensor) -> Tensor:
    """Returns what can be compared element by element: pairs of a complex tensor, float32 of a float8 one, signed
    numbers of an unsigned one.
    """
    import torch

    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else widened(tensor)


def all_close(eager: Tensor, candidate: Tensor, tolerance: float) -> Tensor:
    """A boolean: whether all elements are close by torch.isclose with atol = rtol = tolerance. On a CPU, where to look
    costs no wait, differences within atol alone are seen by a quarter of the operators.
    """
    import torch

    if not eager.is_cuda and eager.is_floating_point() and eager.numel():
        within = (eager - candidate).abs_().amax() <= tolerance
        if bool(within):
            return within
    return torch.isclose(eager, candidate, atol=tolerance, rtol=tolerance).all()


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Returns |a - b| in float64: 0 where both are the same infinity or both are NaN, infinite where only one of them
    is finite or NaN, and at least 1 between two whole numbers that differ.
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
    """Returns the inputs with floating tensors moved by up to `ulps` units in the last place; zeros stay zero, other
    values are passed on.

    The reference's outputs on them go to `measure` as `perturbed`. Each element moves by itself, so that equal elements
    come apart and a variance of 0 does not stay one. by_rows: each row (along the last dimension) moves as a whole.
    Equal terms of a sum are all rounded the same way: a sum of n of them drifts by up to n / 4 units in its last place,
    where n different terms drift by about sqrt(n) / 4, and terms that move by themselves by less.
    half_ulps: for inputs of sixteen bits, where it is another number. mirrored: all moves have the opposite sign, so
    that the two runs of a seed take a tie to both sides.
    """
    factors = _factors_near_one(ulps, half_ulps, mirrored)
    return [_multiply_floats(value, seed, factors, by_rows=by_rows) for value in inputs]


def _factors_near_one(
    ulps: int, half_ulps: int | None, mirrored: bool
) -> Callable[[Tensor, Any], Tensor]:
    import torch

    def factors(piece: Tensor, generator: Any) -> Tensor:
        most = half_ulps if half_ulps is not None and piece.itemsize < 4 else ulps
        steps = torch.randint(
            -most, most + 1, piece.shape, generator=generator, device=piece.device, dtype=torch.int8
        )
        moves = steps.to(piece.dtype) * torch.finfo(piece.dtype).eps
        return 1 - moves if mirrored else 1 + moves

    return factors


def scale_towards_zero(inputs: list[Any], seed: int, share: float = 1 / 64) -> list[Any]:
    """The floating inputs, each element up to `share` of itself nearer to zero: other roundings all the way, and no
    element leaves its domain ([0, 1], an index).
    """
    import torch

    def factors(piece: Tensor, generator: Any) -> Tensor:
        return 1 - share * torch.rand(
            piece.shape, generator=generator, device=piece.device, dtype=piece.dtype
        )

    return [_multiply_floats(v, seed, factors) for v in inputs]


def with_other_strides(inputs: list[Any], *, spread: bool) -> list[Any]:
    """The same numbers in tensors that lie otherwise in memory, so that torch adds them up in another order: the
    dimensions in reverse, or (`spread`) with a gap after every element. Values without a dimension are passed on.
    """
    import torch

    def laid_out(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.dim():
            return value
        if spread:
            wide = torch.empty((*value.shape, 2), dtype=value.dtype, device=value.device)
            return wide[..., 0].copy_(value)
        order = tuple(reversed(range(value.dim())))
        return value.permute(order).contiguous().permute(order)

    return [laid_out(value) for value in inputs]


def _multiply_floats(
    value: Any, seed: int, factors: Callable[[Tensor, Any], Tensor], by_rows: bool = False
) -> Any:
    """A floating tensor times the factors drawn for each piece of it, or for each row; every other value as it is."""
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

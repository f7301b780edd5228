"""Input distributions beside the problem's own: KernelBench's torch.rand hides a dead ReLU, an
int4 product and more.

Every draw is an elementwise map of a problem's own draw. Zero maps to zero and equal values to
equal values, so that triangular, symmetric, one-hot and masked inputs keep their structure. A
draw with a non-finite reference output is not used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kernelwright.tools.references.redrawing.element_maps import (
    enlarged,
    hash_of_values,
    huge_magnitude,
    made_negative,
    made_subnormal,
    made_tiny,
    with_infinities,
    with_nan,
    with_negative_nan,
    with_signs,
    with_special_values,
    with_wide_magnitudes,
    with_zeros,
)
from kernelwright.tools.references.redrawing.index_ends import reach_ends
from kernelwright.tools.references.redrawing.isolation import (
    isolate_largest,
    let_agree,
    let_converge,
    offset_rows,
    repeats_itself,
    scale_rows,
)
from kernelwright.tools.references.redrawing.matrix_structures import (
    TWINS,
    count_up,
    draw_structures,
    let_be_twins,
)
from kernelwright.tools.references.redrawing.row_mixture import mix_rows
from kernelwright.tools.references.redrawing.row_structures import structured, structured_mask

if TYPE_CHECKING:
    import torch

CHUNK_ELEMENTS = 1 << 26
"""Elements mapped at a time."""
FILLING_CHOICES = 8
"""Number of leading elements of a row from which the filling value is chosen."""


class Draw(StrEnum):
    """A distribution of input values, as a map of the numbers of the problem's own draw."""

    OWN = "own"
    SIGNED = "signed"
    """Half of the values change their sign."""
    LARGE = "large"
    """Signed, 19.7 times the size: a problem whose own inputs are small whole numbers gets
    numbers that half precision cannot hold.
    """
    WIDE = "wide"
    """Signed, magnitudes over sixteen powers of two."""
    CONSTANT_ROWS = "constant_rows"
    """Each row is filled with one of its own numbers, no tiny number: variance 0, ties
    everywhere.
    """
    SPECIAL = "special"
    """Signed values: a sixteenth zero (half of these -0.0), a sixteenth from 1/2, 1, 3/2, 2, 5/2
    and 3, and a 64th a hundred times as large.
    """
    NEGATIVE = "negative"
    """Every value below zero: exposes a maximum started at zero."""
    TINY = "tiny"
    """A ten-thousandth of the size: exposes an omitted or misplaced epsilon."""
    ZERO_ROWS = "zero_rows"
    """A sixteenth of the values is zero, and every third row (along the last dimension) entirely.
    """
    NAN = "nan"
    """One value in 97 is NaN. Used if a kernel's text treats NaN specially: it must then agree
    with eager.
    """
    NEGATIVE_NAN = "negative_nan"
    """NaN as in NAN, with a set sign."""
    INFINITE = "infinite"
    """Signed, one value in 97 infinite and one in 41 a power of two up to four million.

    Compared only for outputs which are a number or an infinity in eager.
    """
    MEETING = "meeting"
    """Signed; of two tensors of one form, the second has in an eighth of its positions the
    first's value, a value near it, or its negative.
    """
    SEARCHED = "searched"
    """Numbers placed, or rows scaled, to change comparisons of the candidate's kernels (searched_draws.py)."""
    REDRAWN = "redrawn"
    """The problem's own draw, except that inputs equal in every draw are drawn again from their
    carrier (redrawing/carriers.py).
    """
    ISOLATED = "isolated"
    """Zeros, but for a few numbers of each row (redrawing/isolation.py)."""
    INDEX_ENDS = "index_ends"
    """The problem's own numbers, with integers at both ends of their index range
    (redrawing/index_ends.py).
    """
    MIXED_ROWS = "mixed_rows"
    """Rows take turns: the problem's own numbers, special ones, and few among zeros
    (redrawing/row_mixture.py). Indices reach their ends.
    """
    STRUCTURED = "structured"
    """Rows are sorted, repeated, mirrored, whole, one-hot, ... (redrawing/row_structures.py)."""
    ALONE = "alone"
    """Minus infinities, but for two numbers of each row. Compared as with infinities."""
    AGREEING = "agreeing"
    """Of two tensors of one form, the second equals the first except for a few numbers per row.
    Without such a pair, rows alternate.
    """
    CONVERGED = "converged"
    """Of two tensors of one form, the second differs from the first by at most 2^-8."""
    OFFSET = "offset"
    """A common offset of each row, of 1e3 to 1e5 times the spread."""
    GRADED = "graded"
    """A quarter of the numbers along each axis is a million times as large as the others (redrawing/graded_rows.py)."""
    EXPONENTS = "exponents"
    """One input holds numbers of every exponent of its type, of both signs (redrawing/every_exponent.py)."""
    MATRICES = "matrices"
    """Matrices among inputs and weights are triangular, of rank one, of equal halves, ...; vectors
    constant, inputs of equal form equal, indices counting up (redrawing/matrix_structures.py)."""
    SUBNORMAL = "subnormal"
    """All numbers of the largest input are below the smallest normal one of its type."""
    MINUS_INFINITE_ROWS = "minus_infinite_rows"
    """Every third row of the largest input is minus infinity."""
    SCALED = "scaled"
    """Signed, each row times a power of two, every third row negative, as far from 1 as eager is accurate."""


RELATIVE_OFFSETS = (
    0.0,
    0.0,
    2.0**-20,
    -(2.0**-20),
    2.0**-12,
    -(2.0**-12),
    2.0**-6,
    -(2.0**-6),
    0.25,
    -0.25,
)
"""Relative distances of values from a threshold of a kernel."""
NEAR_OFFSETS = 6
"""Number of leading RELATIVE_OFFSETS used as distances of meeting values."""
SCALE_LIMITS = (50, 24, 12)
"""Largest exponents of the draw `scaled`. Squares stay finite in float32: eager's
`std` sums in float64 on a CPU, and kernels need not.
"""
GRADE_LIMITS = (20, 16)
"""Exponents of the draw `graded`: a float32 sum of numbers 2^20 times as large is off by a tenth."""
LIMITS = {Draw.SCALED: SCALE_LIMITS, Draw.GRADED: GRADE_LIMITS}
"""For draws with a variable exponent, the largest exponents in order of trial."""
MAX_MEETING_PAIRS = 8
"""Pairs of a row and a matrix."""
OF_PAIRS = (Draw.MEETING, Draw.AGREEING, Draw.CONVERGED)
"""Draws for problems with two tensors of one form."""
DRAWN_ELSEWHERE = (Draw.REDRAWN, Draw.SEARCHED, Draw.EXPONENTS, Draw.GRADED)
"""Draws requiring the reference, made in tools/expected."""
WITH_NAN = (Draw.NAN, Draw.NEGATIVE_NAN)
WITH_INFINITIES = (Draw.INFINITE, Draw.ALONE, Draw.MINUS_INFINITE_ROWS)
"""Draws compared only for outputs which are a number or an infinity."""
MIN_ELEMENTS_FOR_INFINITIES, MAX_ELEMENTS_WITH_ONE_INFINITY = 64, 1 << 14
"""Elements of a tensor: fewer need hold no infinity, and more hold both by themselves."""


def apply_draw(draw: Draw, inputs: list[Any], limit: int = 0) -> None:
    """Maps the floating and complex tensors of an own draw in place. Whole numbers stay, and
    booleans in most draws.

    limit: of a draw in LIMITS, its largest exponent; of a draw in several calls, the part.
    """
    import torch

    if draw in (Draw.OWN, *DRAWN_ELSEWHERE):
        return
    if draw in (Draw.INDEX_ENDS, Draw.MIXED_ROWS):
        reach_ends(inputs)
    if draw in (Draw.STRUCTURED, Draw.MIXED_ROWS):
        for value in inputs:
            if isinstance(value, torch.Tensor) and value.dtype == torch.bool and value.numel():
                value.copy_(structured_mask(value))
    if draw is Draw.INDEX_ENDS:
        return
    floating = [
        v for v in inputs if isinstance(v, torch.Tensor) and v.is_floating_point() and v.numel()
    ]
    if draw not in WITHOUT_COMPLEX:
        complex_inputs = [
            v for v in inputs if isinstance(v, torch.Tensor) and v.is_complex() and v.numel()
        ]
        floating += [torch.view_as_real(v) for v in complex_inputs if not v.is_conj()]
    if draw is Draw.MATRICES:
        draw_structures(floating, limit, are_weights=False)
        if limit == TWINS:
            let_be_twins(floating)
        if limit == 0:
            count_up(inputs)
        return
    if draw in _WHOLE_INPUTS:
        _WHOLE_INPUTS[draw](floating)
        return
    for value in floating:
        _map(value, draw) if value.itemsize > 1 else _map_float8(value, draw)
    if draw is Draw.SCALED:
        scale_rows(floating, limit)
    if draw is Draw.MEETING:
        _meet(floating)


def pairs_of_tensors(tensors: list[Any]) -> list[tuple[Any, Any]]:
    """Returns pairs of floating tensors of the same type: each with the next tensor of its shape,
    and with the first tensor that has its last dimensions only (a row beside a matrix).
    """
    floating = [
        t
        for t in tensors
        if hasattr(t, "dtype") and t.is_floating_point() and t.numel() and t.itemsize > 1
    ]
    forms: dict[Any, list[Any]] = {}
    for tensor in floating:
        forms.setdefault((tuple(tensor.shape), tensor.dtype), []).append(tensor)
    alike = [pair for form in forms.values() for pair in itertools.pairwise(form)]
    return (
        alike
        + [(row, t) for t in floating for row in floating if _is_row_of(row, t)][:MAX_MEETING_PAIRS]
    )


def _is_row_of(row: torch.Tensor, tensor: torch.Tensor) -> bool:
    dims = row.dim()
    return bool(
        row.dtype == tensor.dtype and 0 < dims < tensor.dim() and row.shape == tensor.shape[-dims:]
    )


def _meet(tensors: list[Any]) -> None:
    """Makes values of two tensors meet. Positions depend on a single tensor's values, so that
    symmetric tensors stay symmetric.
    """
    import torch

    for first, second in pairs_of_tensors(tensors):
        if _is_symmetric(second) and not _is_symmetric(first):
            continue
        h = hash_of_values(first if first.shape == second.shape else second)
        both = (first != 0) & (second != 0)
        near = torch.tensor(RELATIVE_OFFSETS, dtype=first.dtype, device=first.device)[
            ((h >> 8) % NEAR_OFFSETS).long()
        ]
        second.copy_(torch.where(both & ((h >> 3) % 16 == 0), first * (1 + near), second))
        second.copy_(torch.where(both & ((h >> 3) % 16 == 1), -first, second))


def _is_symmetric(tensor: torch.Tensor) -> bool:
    """Returns True for square matrices, or batches, that equal their transpose."""
    import torch

    square = tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2]
    return square and torch.equal(tensor, tensor.mT)


def _map_float8(tensor: torch.Tensor, draw: Draw) -> None:
    """Maps through float32, because torch computes nothing in eight bits; saturates at the
    largest number.
    """
    import torch

    wide = tensor.float()
    _map(wide, draw)
    most = torch.finfo(tensor.dtype).max
    tensor.copy_(wide.clamp_(-most, most))


def _pieces(tensor: torch.Tensor) -> Iterator[Any]:
    """Yields whole rows, CHUNK elements at a time; the whole tensor at once if its rows are not
    consecutive.
    """
    if not tensor.is_contiguous():
        yield tensor
        return
    rows = tensor.view(-1, tensor.shape[-1])
    step = max(1, CHUNK_ELEMENTS // tensor.shape[-1])
    for start in range(0, rows.shape[0], step):
        yield rows[start : start + step]


def _of_some_size(heads: torch.Tensor) -> Any:
    """Returns from each row the first number of at least half the row's maximum: (..., 1).

    A row filled with a tiny number loses digits in the usual forms of elu and tanh, and a
    division by the row's own size reveals that. Rows of different numbers are never tiny as a
    whole.
    """
    size = heads.abs()
    large = size >= size.amax(-1, keepdim=True) / 2
    first = (large.cumsum(-1) == 0).sum(-1, keepdim=True)
    return heads.gather(-1, first.clamp_(max=heads.shape[-1] - 1))


def _map(tensor: torch.Tensor, draw: Draw) -> None:
    if draw is Draw.CONSTANT_ROWS:
        if tensor.dim() > 1 and tensor.shape[-1] > 1 and not bool((tensor == 0).any()):
            for piece in _pieces(tensor):
                piece.copy_(_of_some_size(piece[..., :FILLING_CHOICES]).expand_as(piece).clone())
        return
    flat = tensor.view(-1) if tensor.is_contiguous() else None
    if flat is None:
        tensor.copy_(_mapped(tensor.contiguous(), _MAPS[draw]))
    else:
        _map_flat(flat, draw)
    if (
        draw is Draw.INFINITE
        and MIN_ELEMENTS_FOR_INFINITIES <= tensor.numel() < MAX_ELEMENTS_WITH_ONE_INFINITY
    ):
        _both_infinities(tensor)
    if draw is Draw.ZERO_ROWS and tensor.dim() and not _is_symmetric(tensor):
        rows = flat.view(-1, tensor.shape[-1]) if flat is not None else tensor.movedim(0, 0)
        rows[::3] = 0


def _both_infinities(tensor: torch.Tensor) -> None:
    """Ensures infinities of both signs, in place: with one value in 97, 335 values may lack a
    sign. Replaces the largest or smallest moderate value, unless many elements share it.
    """
    for sign in (1.0, -1.0):
        if bool((tensor == sign * float("inf")).any()):
            continue
        plain = tensor * sign
        moderate = plain[plain < huge_magnitude(tensor)]
        if not moderate.numel() or (largest := moderate.max()) == 0:
            continue
        same = plain == largest
        if int(same.sum()) <= 1 + tensor.numel() // 97:
            tensor[same] = sign * float("inf")


def _map_flat(flat: torch.Tensor, draw: Draw) -> None:
    """Maps the values element by element, in place, in pieces."""
    for start in range(0, flat.numel(), CHUNK_ELEMENTS):
        piece = flat[start : start + CHUNK_ELEMENTS]
        piece.copy_(_mapped(piece, _MAPS[draw]))


def _mapped(values: torch.Tensor, how: Callable[[Any, Any], Any]) -> Any:
    return how(values, hash_of_values(values))


_MAPS: dict[Draw, Callable[[Any, Any], Any]] = {
    Draw.SIGNED: with_signs,
    Draw.LARGE: enlarged,
    Draw.WIDE: with_wide_magnitudes,
    Draw.SPECIAL: with_special_values,
    Draw.NEGATIVE: made_negative,
    Draw.NAN: with_nan,
    Draw.NEGATIVE_NAN: with_negative_nan,
    Draw.ZERO_ROWS: with_zeros,
    Draw.TINY: made_tiny,
    Draw.INFINITE: with_infinities,
    Draw.MEETING: with_signs,
    Draw.SCALED: with_signs,
}


def _mix_rows(tensors: list[Any]) -> None:
    mix_rows(tensors, lambda numbers: _mapped(numbers, with_special_values))


def _agree_or_mix_rows(tensors: list[Any]) -> None:
    pairs = pairs_of_tensors(tensors)
    if pairs:
        let_agree(pairs)
    else:
        _mix_rows(tensors)


def _structure_rows(tensors: list[Any]) -> None:
    for tensor in tensors:
        tensor.copy_(structured(tensor))


def _make_largest_subnormal(tensors: list[Any]) -> None:
    for tensor in _largest(tensors)[:1]:
        tensor.copy_(made_subnormal(tensor))


def _fill_rows_with_minus_infinity(tensors: list[Any]) -> None:
    for tensor in _largest(tensors)[:1]:
        if tensor.dim():
            rows = tensor.view(-1, tensor.shape[-1])[::3]
            rows[rows != 0] = -math.inf  # zeros may be a triangle that the reference counts on


def _largest(tensors: list[Any]) -> list[Any]:
    """Returns the contiguous tensors with the most elements, without repetitions."""
    fitting = [t for t in tensors if t.itemsize > 1 and t.is_contiguous() and not repeats_itself(t)]
    most = max((t.numel() for t in fitting), default=0)
    return [t for t in fitting if t.numel() == most]


_WHOLE_INPUTS: dict[Draw, Callable[[list[Any]], None]] = {
    Draw.ISOLATED: lambda tensors: isolate_largest(tensors, 0.0),
    Draw.MIXED_ROWS: _mix_rows,
    Draw.STRUCTURED: _structure_rows,
    Draw.ALONE: lambda tensors: isolate_largest(tensors, -math.inf),
    Draw.AGREEING: _agree_or_mix_rows,
    Draw.CONVERGED: lambda tensors: let_converge(pairs_of_tensors(tensors)),
    Draw.OFFSET: offset_rows,
    Draw.SUBNORMAL: _make_largest_subnormal,
    Draw.MINUS_INFINITE_ROWS: _fill_rows_with_minus_infinity,
}
"""Draws changing whole rows instead of elements."""
WITHOUT_COMPLEX = (*WITH_NAN, *WITH_INFINITIES, Draw.SUBNORMAL)
"""Draws which leave complex numbers unchanged: torch's own operators disagree on infinite parts."""


def keep_edges(inputs: list[Any], before: list[Any]) -> None:
    """Puts the first and last row and column of earlier floating inputs back into new ones, in place."""
    import torch

    for new, old in zip(inputs, before, strict=True):
        if (
            isinstance(new, torch.Tensor)
            and new.is_floating_point()
            and new.dim()
            and new.shape == old.shape
            and new.shape[-1] > 2
        ):
            for edge in (0, -1):
                new[..., edge] = old[..., edge]
                if new.dim() > 1 and new.shape[-2] > 2:
                    new[..., edge, :] = old[..., edge, :]

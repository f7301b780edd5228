"""Compares an output by the rule of its draw.

Example: on the draw `own` every element is compared by the tolerance of its row; on `nan` NaN
positions must also be equal; on `exponents` each element is also compared relative to its own size;
on `matrices` float32 outputs may not lose bits that a single rounding preserves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from kernelwright.tools.comparing.comparison import ComparedOutput, measure, with_mismatch
from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.comparing.exactness.function_errors import (
    exponents_of,
    wrong_function_values,
)
from kernelwright.tools.comparing.exactness.single_rounding import (
    CUT_BITS,
    LOST_BITS,
    MAX_UNITS,
    ROUNDED_BY_CHANCE,
    cut_bits,
    lost_bits,
    unequal_rows,
)
from kernelwright.tools.comparing.exactness.steps import StepReach
from kernelwright.tools.comparing.special_values import measure_finite_part, measure_with_nan
from kernelwright.tools.faults import Fault
from kernelwright.tools.numerics.pieces import PIECE_ELEMENTS, raise_to_distance
from kernelwright.tools.numerics.tolerance import Tensor, Tolerance, allowance
from kernelwright.tools.references.input_distributions import WITH_INFINITIES, WITH_NAN, Draw

if TYPE_CHECKING:
    from kernelwright.tools.expected.prepared_problem import ExpectedOutputs

TF32_SHARE_OF_ERROR = 0.5
"""Share of the reference's error in tf32 that counts as eager's own at each element. `measure`
allows eight times that, so a candidate may deviate by four times the tf32 error there. Of two tf32
runs, one is often twice as wrong as the other at an element after cancellation. Errors everywhere
are found by the mean (MAX_TF32_ERROR_IN_RMS)."""
MIN_TF32_ERROR_IN_RMS = 2.5
"""Minimum error per element, in multiples of the tf32 error's RMS over affected elements. For
inputs near 0 an output is determined by the biases, a number per channel, which may be correct by
chance."""
MAX_TF32_ERROR_IN_RMS = 1.2
"""Maximum RMS error of a candidate over the whole output, in multiples of the tf32 error's RMS.
With operands in tf32, rounded or truncated, the ratio is 0.15 to 1; with operands in bf16 1.22 to
5.6 (cases of tests/tools/expected/test_by_draw.py)."""

DRAWS_COMPARED_WHERE_FINITE = (*WITH_NAN, Draw.INFINITE, Draw.ZERO_ROWS)
"""Draws whose non-finite elements are excluded from the comparison. Not the draw `named`: its
numbers lie at jumps of a candidate's function."""
DRAWS_OF_ALL_SIZES = (
    Draw.OWN,
    Draw.SIGNED,
    Draw.NEGATIVE,
    Draw.LARGE,
    Draw.WIDE,
    Draw.SPECIAL,
    Draw.GRADED,
)
"""Draws on which single elements are held to their own size."""
CANCELLATION = (
    "Elements that follow from small numbers alone lose their digits: the answer is a difference of large sums, such "
    "as a total minus a prefix, which cancel. Add what belongs to the element, and nothing else."
)
MAX_SQUARABLE_FP32 = 1e19
"""The largest number with a finite float32 square: larger errors are excluded from means."""
MIN_RMS = 1e-300
"""Replaces an RMS of 0 as a divisor."""


def measure_by_draw(
    mine: Tensor,
    expected: ExpectedOutputs,
    number: int,
    name: str,
    tolerance: Tolerance | None = None,
    moved: Callable[[], Sequence[Tensor | StepReach]] | None = None,
    tf32_errors: Callable[[], list[Tensor] | None] = lambda: None,
    kind: ArithmeticKind = ArithmeticKind.ROUNDED,
) -> ComparedOutput:
    """Compares output `number` of a candidate with the expected output.

    name: that of the draw in messages. tolerance: eager's error on another draw, for a draw without
    float64 or on which eager overflowed. moved: outputs that deviate as an honest candidate's may,
    or the steps of stepped outputs. tf32_errors: errors of the outputs with convolutions in tf32,
    None without convolutions; both are called only for a wrong output. kind: arithmetic of the
    output.
    """
    eager = expected.eager[number]
    exact = None if expected.exact is None else expected.exact[number]
    perturbed = None if moved is None else lambda: moved()[number]

    def compared(
        perturbed: Callable[[], Tensor | StepReach] | None, *, explained: bool
    ) -> ComparedOutput:
        common: dict[str, Any] = {
            "kind": kind, "eps": expected.coarsest_eps(), "draw": name, "output": number, "moved": perturbed,
            "explained": explained,
        }  # fmt: skip
        if expected.draw in WITH_NAN:
            return measure_with_nan(mine, eager, exact, **common)
        if expected.draw in WITH_INFINITIES or (
            expected.draw == Draw.ZERO_ROWS and not expected.finite()
        ):
            return measure_finite_part(mine, eager, exact, inputs=expected.inputs, **common)
        checks_small_elements = expected.draw in DRAWS_OF_ALL_SIZES
        measured = measure(
            mine, eager, exact, tolerance=tolerance, small_elements=checks_small_elements, **common
        )
        if expected.draw == Draw.GRADED and measured.mismatch is not None:
            return measured.with_(mismatch=measured.mismatch.with_(hint=CANCELLATION))
        if expected.draw == Draw.OWN and measured.check.passed and kind is ArithmeticKind.ROUNDED:
            cut = cut_bits(mine, eager)
            return measured if cut is None else _cut(measured, cut, mine, expected, number)
        if expected.draw == Draw.MATRICES and measured.check.passed:
            return _held_to_one_rounding(measured, mine, expected, number, tf32_errors)
        if expected.draw != Draw.EXPONENTS or not measured.check.passed:
            return measured
        return _held_to_own_size(measured, mine, expected, number, perturbed)

    if kind is ArithmeticKind.EXACT:
        return compared(None, explained=True)
    special = expected.special()
    may_move = not special or (exact is not None and expected.draw in DRAWS_COMPARED_WHERE_FINITE)
    plain = perturbed if may_move else None
    first_comparison = compared(plain, explained=False)
    if first_comparison.check.passed:
        return first_comparison
    errors = (
        tf32_errors()
        if first_comparison.fault is Fault.MISMATCH and mine.is_floating_point()
        else None
    )
    if errors is None:
        return compared(plain, explained=True)
    base = eager if exact is None else exact
    own_rms = _rms(mine, base)
    ratio = own_rms / max(_rms(errors[number]), MIN_RMS)
    moves = None if special or perturbed is None or kind is ArithmeticKind.STEPPED else perturbed
    if (
        special
        or ratio <= MAX_TF32_ERROR_IN_RMS
        or (moves is not None and own_rms <= _rms(moves(), base))
    ):
        off = cache(lambda: _off_by(base, errors[number], None if moves is None else moves()))
        repeated = compared(off, explained=False)
        if repeated.check.passed:
            return _noted(repeated)
    return _with_ratio(compared(plain, explained=True), ratio)


def _held_to_own_size(
    measured: ComparedOutput,
    mine: Tensor,
    expected: ExpectedOutputs,
    number: int,
    perturbed: Callable[[], Tensor | StepReach] | None,
) -> ComparedOutput:
    """Compares an elementwise function's output, also relative to each element's own size."""
    eager = expected.eager[number]
    if expected.exact is None or not eager.is_floating_point() or not eager.numel():
        return measured
    exact = expected.exact[number]
    allow = allowance(eager.dtype)
    if exact.shape != mine.shape or eager.itemsize == 1:
        return measured
    wrong = wrong_function_values(mine, eager, exact, None, expected.inputs, allow)
    if bool(wrong.any()) and perturbed is not None:
        moved = perturbed()
        if isinstance(moved, StepReach):
            moved = moved.moved_from(exact)
        wrong = wrong_function_values(mine, eager, exact, moved, expected.inputs, allow)
    if not bool(wrong.any()):
        return measured
    hint = exponents_of(wrong, expected.inputs)
    return _failed(measured, wrong, mine, exact, number, hint)


def _held_to_one_rounding(
    measured: ComparedOutput,
    mine: Tensor,
    expected: ExpectedOutputs,
    number: int,
    tf32_errors: Callable[[], list[Tensor] | None],
) -> ComparedOutput:
    """Compares an output whose numbers eager rounds once, or with equal rows.

    Convolutions may be in tf32, also at a size at which cuDNN's are not.
    """
    eager = expected.eager[number]
    exact = None if expected.exact is None else expected.exact[number]
    if (lost := lost_bits(mine, eager, exact)) is not None and tf32_errors() is None:
        hint = LOST_BITS.format(units=MAX_UNITS)
        return _failed(measured, lost, mine, exact, number, hint).with_(fault=Fault.PRECISION)
    if (differs := unequal_rows(mine, eager)) is not None:
        base = eager if exact is None else exact
        return _failed(measured, differs, mine, base, number, ROUNDED_BY_CHANCE)
    return measured


def _cut(
    measured: ComparedOutput, cut: Tensor, mine: Tensor, expected: ExpectedOutputs, number: int
) -> ComparedOutput:
    """Returns the failed comparison of an output with truncated bits."""
    base = expected.eager[number] if expected.exact is None else expected.exact[number]
    return _failed(measured, cut, mine, base, number, CUT_BITS).with_(fault=Fault.PRECISION)


def _failed(
    measured: ComparedOutput, wrong: Tensor, mine: Tensor, exact: Tensor, number: int, hint: str
) -> ComparedOutput:
    failed = measured.with_(check=measured.check.with_(passed=False), headroom=math.inf)
    return with_mismatch(failed, wrong, mine, exact, number, hint)


def _off_by(base: Tensor, errors: Tensor, perturbed: Tensor | None) -> Tensor:
    """Returns outputs at the distance from `base` that an honest candidate may have.

    At each element this is the largest of the scaled tf32 error, its RMS (after a relu the error of
    a single run may be 0 by chance), and the distance of `perturbed`.
    """

    errors.nan_to_num_(nan=0.0, posinf=0.0)
    some = sum(int(((piece > 0) & (piece < MAX_SQUARABLE_FP32)).sum()) for piece in _pieces(errors))
    least = MIN_TF32_ERROR_IN_RMS * _rms(errors) * (errors.numel() / max(some, 1)) ** 0.5
    # The errors are kept: an output whose open elements are filled is compared once more.
    off = errors.clamp(min=least).mul_(TF32_SHARE_OF_ERROR)
    if perturbed is not None:
        raise_to_distance(off, perturbed, base)
    return off.add_(base) if off.dtype == base.dtype else base + off


def _rms(values: Tensor, base: Tensor | None = None) -> float:
    """Returns the root mean square of values, or of their distances from `base`; non-finite or huge
    values count as correct."""
    import torch

    squares = torch.zeros((), dtype=torch.float64, device=values.device)
    base_pieces = [None] * (values.numel() // PIECE_ELEMENTS + 1) if base is None else _pieces(base)
    for piece, base_piece in zip(_pieces(values), base_pieces, strict=False):
        errors = piece if base_piece is None else piece - base_piece
        bounded = torch.where(errors.abs() < MAX_SQUARABLE_FP32, errors, 0.0)
        squares += torch.linalg.vector_norm(bounded, dtype=torch.float64).square()
    return math.sqrt(float(squares) / max(values.numel(), 1))


def _pieces(tensor: Tensor) -> Sequence[Tensor]:
    """Returns the elements of an output, possibly gigabytes, in order."""
    return tensor.reshape(-1).split(PIECE_ELEMENTS)


def _with_ratio(measured: ComparedOutput, ratio: float) -> ComparedOutput:
    """Adds the ratio to tf32's error to the hint of an output with rounding errors."""
    if measured.mismatch is None or measured.fault is not Fault.PRECISION:
        return measured
    hint = f"RMS error {ratio:.2f} times that of the problem's own convolutions in tf32. {measured.mismatch.hint}"
    return measured.with_(mismatch=measured.mismatch.with_(hint=hint))


def _noted(measured: ComparedOutput) -> ComparedOutput:
    note = "within what the problem's convolutions are off by in tf32, torch's default for them on a GPU"
    return measured.with_(check=measured.check.with_(note=note))

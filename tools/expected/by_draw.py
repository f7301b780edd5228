"""One output compared by the rule of the draw that it comes from."""

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
"""Of the reference's error in tf32, which counts as eager's own at each element: `measure` allows eight times that, so
a candidate may be off by four times what tf32 is off by there. Of two runs in tf32 one is often twice as wrong as the
other at an element where little is left of a sum. What is wrong everywhere is found by the mean, below.
"""
MIN_TF32_ERROR_IN_RMS = 2.5
"""Of the RMS of that error over the elements that are off at all: the least that counts at any one element. Where
inputs are near 0, an output is what the biases make of it, one number a channel, and that one is right by luck.
"""
MAX_TF32_ERROR_IN_RMS = 1.2
"""Times the RMS of that error, over the whole output: what a candidate's own may be. It is 0.15 to 1 with operands in
tf32, rounded or cut, and 1.22 to 5.6 with operands in bf16 (the cases of tests/tools/expected/test_by_draw.py).
"""

DRAWS_COMPARED_WHERE_FINITE = (*WITH_NAN, Draw.INFINITE, Draw.ZERO_ROWS)
"""Draws of which what is not finite is left out of the comparison. Not the draw `named`: its numbers lie where a
candidate's function jumps.
"""
DRAWS_OF_ALL_SIZES = (
    Draw.OWN,
    Draw.SIGNED,
    Draw.NEGATIVE,
    Draw.LARGE,
    Draw.WIDE,
    Draw.SPECIAL,
)
"""Draws on which single elements are held to their own size."""
MAX_SQUARABLE_FP32 = 1e19
"""The largest number whose square float32 still holds: larger errors are left out of a mean."""
MIN_RMS = 1e-300
"""Stands for the RMS of an error that is 0, where something is divided by it."""


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
    """Compares output `number` of a candidate with what is expected.

    name: of the draw, as it is told. tolerance: eager's error on another draw, for one without float64 or on which
    eager overflowed. moved: outputs off by what an honest candidate may be off by, or the steps of outputs that step.
    tf32_errors: by how much the outputs are off where the problem's convolutions are in tf32, None where it has none;
    both are asked for only where the output is wrong without them. kind: how the output comes about.
    """
    eager = expected.eager[number]
    exact = None if expected.exact is None else expected.exact[number]
    perturbed = None if moved is None else lambda: moved()[number]

    def compared(
        perturbed: Callable[[], Tensor | StepReach] | None, *, explained: bool
    ) -> ComparedOutput:
        given: dict[str, Any] = {
            "kind": kind, "eps": expected.coarsest_eps(), "draw": name, "output": number, "moved": perturbed,
            "explained": explained,
        }  # fmt: skip
        if expected.draw in WITH_NAN:
            return measure_with_nan(mine, eager, exact, **given)
        if expected.draw in WITH_INFINITIES or (
            expected.draw == Draw.ZERO_ROWS and not expected.finite()
        ):
            return measure_finite_part(mine, eager, exact, inputs=expected.inputs, **given)
        held = expected.draw in DRAWS_OF_ALL_SIZES
        measured = measure(mine, eager, exact, tolerance=tolerance, small_elements=held, **given)
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
    found = compared(plain, explained=False)
    if found.check.passed:
        return found
    errors = tf32_errors() if found.fault is Fault.MISMATCH and mine.is_floating_point() else None
    if errors is None:
        return compared(plain, explained=True)
    base = eager if exact is None else exact
    own = _rms(mine, base)
    ratio = own / max(_rms(errors[number]), MIN_RMS)
    moves = None if special or perturbed is None or kind is ArithmeticKind.STEPPED else perturbed
    if (
        special
        or ratio <= MAX_TF32_ERROR_IN_RMS
        or (moves is not None and own <= _rms(moves(), base))
    ):
        off = cache(lambda: _off_by(base, errors[number], None if moves is None else moves()))
        again = compared(off, explained=False)
        if again.check.passed:
            return _noted(again)
    return _with_ratio(compared(plain, explained=True), ratio)


def _held_to_own_size(
    measured: ComparedOutput,
    mine: Tensor,
    expected: ExpectedOutputs,
    number: int,
    perturbed: Callable[[], Tensor | StepReach] | None,
) -> ComparedOutput:
    """The comparison of a function of single elements, each of which is held to its own size, too."""
    eager = expected.eager[number]
    if expected.exact is None or not eager.is_floating_point() or not eager.numel():
        return measured
    exact, allow = expected.exact[number], allowance(eager.dtype)
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
    """The comparison of an output whose numbers eager rounds once, or whose rows are equal. Convolutions may be in
    tf32, also at a size at which cuDNN's are not.
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
    """The comparison of an output whose last bits are cut off."""
    base = expected.eager[number] if expected.exact is None else expected.exact[number]
    return _failed(measured, cut, mine, base, number, CUT_BITS).with_(fault=Fault.PRECISION)


def _failed(
    measured: ComparedOutput, wrong: Tensor, mine: Tensor, exact: Tensor, number: int, hint: str
) -> ComparedOutput:
    failed = measured.with_(check=measured.check.with_(passed=False), headroom=math.inf)
    return with_mismatch(failed, wrong, mine, exact, number, hint)


def _off_by(base: Tensor, errors: Tensor, perturbed: Tensor | None) -> Tensor:
    """Outputs whose distance from `base` is the error that an honest candidate may have: at each element the largest of
    the scaled tf32 error there, of its RMS (behind a relu the error of one run may be 0 by luck), and of the distance
    of `perturbed`.
    """

    errors.nan_to_num_(nan=0.0, posinf=0.0)  # they are nobody else's
    some = sum(int(((piece > 0) & (piece < MAX_SQUARABLE_FP32)).sum()) for piece in _pieces(errors))
    least = MIN_TF32_ERROR_IN_RMS * _rms(errors) * (errors.numel() / max(some, 1)) ** 0.5
    off = errors.clamp_(min=least).mul_(TF32_SHARE_OF_ERROR)
    if perturbed is not None:
        raise_to_distance(off, perturbed, base)
    return off.add_(base) if off.dtype == base.dtype else base + off


def _rms(values: Tensor, base: Tensor | None = None) -> float:
    """Root mean square, of the distances from `base` where there is one, as if what is not finite, or too large for a
    square, were right.
    """
    import torch

    squares = torch.zeros((), dtype=torch.float64, device=values.device)
    others = [None] * (values.numel() // PIECE_ELEMENTS + 1) if base is None else _pieces(base)
    for piece, other in zip(_pieces(values), others, strict=False):
        errors = piece if other is None else piece - other
        known = torch.where(errors.abs() < MAX_SQUARABLE_FP32, errors, 0.0)
        squares += torch.linalg.vector_norm(known, dtype=torch.float64).square()
    return math.sqrt(float(squares) / max(values.numel(), 1))


def _pieces(tensor: Tensor) -> Sequence[Tensor]:
    """The elements of an output that may take gigabytes, in order."""
    return tensor.reshape(-1).split(PIECE_ELEMENTS)


def _with_ratio(measured: ComparedOutput, ratio: float) -> ComparedOutput:
    """Says of an output that is wrong by rounding how it compares with tf32."""
    if measured.mismatch is None or measured.fault is not Fault.PRECISION:
        return measured
    told = f"RMS error {ratio:.2f} times that of the problem's own convolutions in tf32. {measured.mismatch.hint}"
    return measured.with_(mismatch=measured.mismatch.with_(hint=told))


def _noted(measured: ComparedOutput) -> ComparedOutput:
    note = "within what the problem's convolutions are off by in tf32, torch's default for them on a GPU"
    return measured.with_(check=measured.check.with_(note=note))

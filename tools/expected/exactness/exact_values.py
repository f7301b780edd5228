"""Finds outputs that no arithmetic rounds although an operator might: `x * mask`, `x * 0.5`, a product of bf16 numbers
in fp32. There eager equals float64 on every draw, and a correct kernel has eager's values.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.expected.prepared_problem import (
    ExpectedOutputs,
    PreparedProblem,
    expected_outputs,
)
from kernelwright.tools.expected.weights import perturbed_model, weights_of
from kernelwright.tools.numerics.pieces import pieces
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.input_distributions import Draw

if TYPE_CHECKING:
    import torch

TRIED_DRAWS = (Draw.SIGNED, Draw.WIDE, Draw.LARGE)
"""Draws with numbers of every magnitude, on which rounding shows."""
LOOKED_AT_FIRST = 4096
"""Elements that are compared before all are."""
MIN_BYTES = 4
"""Minimum size of an output's type in bytes: a smaller type hides earlier roundings."""
MIN_ELEMENTS = 64
"""Minimum number of output elements from which missing roundings are no coincidence."""


def kind_of_output(
    prepared: PreparedProblem, expected: ExpectedOutputs, number: int, candidate: torch.Tensor
) -> ArithmeticKind:
    """Returns the arithmetic of output `number`, for a candidate with other values than eager's.

    If operators might round, the output is exact if eager equals float64 on this draw and on
    others, at this size and at the base size; tried once per size. (With a single column x / |x| is
    1 for any x, and kernels round the divisor.) If no operator seems to round, the output is not
    exact if eager and float64 differ: then a constant has more digits than float32, or torch does
    not observe the work.
    """
    import torch

    kind = prepared.kind_of(number)
    if (
        kind is ArithmeticKind.STEPPED
        or expected.exact is None
        or torch.equal(candidate, expected.eager[number])
    ):
        return kind
    if not _rounds_nothing(expected, number):
        is_float = candidate.is_floating_point() or candidate.is_complex()
        return ArithmeticKind.ROUNDED if is_float else ArithmeticKind.STEPPED
    is_coarse = not candidate.is_floating_point() or candidate.itemsize < MIN_BYTES
    if kind is ArithmeticKind.EXACT or is_coarse or not prepared.shows_rounding:
        return kind
    if number not in prepared.never_rounded:
        prepared.never_rounded[number] = _never_rounds(prepared, expected.rng, number)
    return ArithmeticKind.EXACT if prepared.never_rounded[number] else kind


def _never_rounds(prepared: PreparedProblem, seed: int, number: int) -> bool:
    """Returns True if eager equals float64 on its own draws, with other weights if any; also at the
    base size while in memory."""
    import torch

    model = perturbed_model(prepared, seed) if weights_of(prepared) else None
    for draw in TRIED_DRAWS:
        with contextlib.suppress(ProblemError, torch.cuda.OutOfMemoryError):
            drawn = expected_outputs(prepared, draw, seed + 1, model=model)
            if drawn.exact is None or drawn.exact[number].numel() < MIN_ELEMENTS:
                return False
            if not _rounds_nothing(drawn, number):
                return False
    base = None if prepared.at_base is None else prepared.at_base()
    if base is None or base.exact_seconds is None:
        return True
    if number not in base.never_rounded:
        base.never_rounded[number] = _never_rounds(base, seed, number)
    return base.never_rounded[number]


def _rounds_nothing(expected: ExpectedOutputs, number: int) -> bool:
    """Returns True if an output of eager equals float64's; NaN equals NaN."""
    assert expected.exact is not None
    eager = expected.eager[number]
    exact = expected.exact[number]
    if eager.shape != exact.shape or (eager.is_floating_point() and eager.itemsize == 1):
        return False
    first = slice(0, LOOKED_AT_FIRST)
    if not _are_same(eager.reshape(-1)[first], exact.reshape(-1)[first]):
        return False
    return all(
        _are_same(eager_piece, exact_piece) for eager_piece, exact_piece in pieces(eager, exact)
    )


def _are_same(eager: torch.Tensor, exact: torch.Tensor) -> bool:
    wide = eager.to(exact.dtype)
    return bool(((wide == exact) | ((wide != wide) & (exact != exact))).all())

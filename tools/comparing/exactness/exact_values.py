"""Finds outputs that no arithmetic rounds although an operator might: `x * mask`, `x * 0.5`, a product of bf16 numbers
in fp32. There eager equals float64 on every draw, and a correct kernel has eager's values.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.references.prepared_problem import (
    ExpectedOutputs,
    PreparedProblem,
    expected_outputs,
    perturbed_model,
)

if TYPE_CHECKING:
    import torch

TRIED_DRAWS = (Draw.SIGNED, Draw.WIDE, Draw.LARGE)
"""Draws with numbers of every size, on which what rounds is seen to round."""
LOOKED_AT_FIRST = 4096
"""Elements that are compared before all are."""
MIN_ELEMENTS = 64
"""Elements of an output from which on it is no luck that none is rounded."""


def kind_of_output(
    prepared: PreparedProblem, expected: ExpectedOutputs, number: int, candidate: torch.Tensor
) -> ArithmeticKind:
    """Returns how output `number` comes about. One that some operator might round is exact if eager is float64's on
    this draw and on others; that is tried once a problem, and only for a candidate with other values.
    """
    import torch

    kind = prepared.kind_of(number)
    if kind is not ArithmeticKind.ROUNDED or expected.exact is None or torch.equal(candidate, expected.eager[number]):
        return kind
    if not _rounds_nothing(expected, number):
        return kind
    if number not in prepared.never_rounded:
        prepared.never_rounded[number] = _never_rounds(prepared, expected, number)
    return ArithmeticKind.EXACT if prepared.never_rounded[number] else kind


def _never_rounds(prepared: PreparedProblem, expected: ExpectedOutputs, number: int) -> bool:
    """Whether eager is float64's on draws of its own, with other weights where there are some."""
    import torch

    if expected.exact is None or expected.exact[number].numel() < MIN_ELEMENTS:
        return False
    model = perturbed_model(prepared, expected.rng) if prepared.has_weights else None
    for draw in TRIED_DRAWS:
        with contextlib.suppress(ProblemError, torch.cuda.OutOfMemoryError):
            drawn = expected_outputs(prepared, draw, expected.rng + 1, model=model)
            if not _rounds_nothing(drawn, number):
                return False
    return True


def _rounds_nothing(expected: ExpectedOutputs, number: int) -> bool:
    """Whether an output of eager is float64's."""
    import torch

    assert expected.exact is not None
    eager, exact = expected.eager[number], expected.exact[number]
    if not eager.is_floating_point() or eager.shape != exact.shape or eager.itemsize == 1:
        return False
    first = slice(0, LOOKED_AT_FIRST)
    if not torch.equal(eager.reshape(-1)[first].to(exact.dtype), exact.reshape(-1)[first]):
        return False
    return torch.equal(eager.to(exact.dtype), exact)

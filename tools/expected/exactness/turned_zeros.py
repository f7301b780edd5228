"""Finds zeros with a wrong sign: -0.0 instead of 0.0, whose reciprocal is minus infinity.

`x * mask` is an honest form of a selection, and yields -0.0 for negative numbers. But if the
reference's answer is zero for an infinite input, too, as for `relu`, a product would be NaN there:
only a selection yields a zero, with a definite sign. A zero that depends on a zero among the inputs
may have either sign (`0.0 - x` and `-x` differ), and a negative zero of the reference is not
required, since a kernel may add it to zero.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

from kernelwright.tools.comparing.comparison import ComparedOutput, with_mismatch
from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs, PreparedProblem, run_on
from kernelwright.tools.numerics.tolerance import widened
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.report import Check, Fault

if TYPE_CHECKING:
    import torch

ZERO_SIGN_HINT = "The output is -0.0 where the reference has 0.0: one over it has the other sign."


def measure_turned_zeros(
    prepared: PreparedProblem, expected: ExpectedOutputs, number: int, candidate: torch.Tensor, name: str
) -> ComparedOutput | None:  # fmt: skip
    """Returns the failed comparison of output `number` if it has zeros of the wrong sign, else
    None. name: that of the draw."""
    turned = _turned(prepared, expected, number, candidate)
    if turned is None or not _stay_zero_of_infinities(prepared, expected, number, turned):
        return None
    failed = ComparedOutput(check=Check(draw=name, passed=False, max_error=0.0), headroom=math.inf)
    eager = expected.eager[number]
    return with_mismatch(failed, turned, candidate, eager, number, ZERO_SIGN_HINT).with_(
        fault=Fault.MISMATCH
    )


def _turned(
    prepared: PreparedProblem, expected: ExpectedOutputs, number: int, candidate: torch.Tensor
) -> torch.Tensor | None:
    """Returns a boolean for each element, true for a zero of the wrong sign; None without any."""
    import torch

    eager = expected.eager[number]
    is_asked = (
        not prepared.mixes_elements
        and prepared.kind_of(number) is ArithmeticKind.EXACT
        and eager.is_floating_point()
        and eager.itemsize > 1
        and candidate.shape == eager.shape
    )
    if not is_asked:
        return None
    turned = (candidate == 0) & torch.signbit(candidate) & (eager == 0) & ~torch.signbit(eager)
    if not bool(turned.any()):
        return None
    tensors = [v for v in expected.inputs if isinstance(v, torch.Tensor)]
    return None if any(bool((widened(v) == 0).any()) for v in tensors) else turned


def _stay_zero_of_infinities(
    prepared: PreparedProblem, expected: ExpectedOutputs, number: int, turned: torch.Tensor
) -> bool:
    """Returns True if the reference still yields zeros at these elements for infinite inputs of
    their shape."""
    import torch

    def infinite(value: Any) -> Any:
        is_own = (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.shape == turned.shape
        )
        return torch.where(turned, value * math.inf, value) if is_own else value

    with contextlib.suppress(ProblemError):
        inputs = [infinite(value) for value in expected.inputs]
        output = run_on(prepared, expected, expected.weights, inputs)[number]
        return bool((output[turned] == 0).all())
    return False

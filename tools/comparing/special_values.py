"""Compares outputs of inputs with infinities or NaN: non-finite elements must be equal, the others
are compared as usual."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kernelwright.tools.comparing.comparison import ComparedOutput, measure, with_mismatch
from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.comparing.exactness.steps import StepReach
from kernelwright.tools.numerics.tolerance import FP32_EPS, Tensor, widened
from kernelwright.tools.report import Check, Fault

MAX_CANCELLATION_ULPS, MAX_CANCELLATION_SHARE = 64, 1e-2
"""Maximum deviation for huge inputs: in ulps of the largest element, and as a share of it."""
NO_ANSWER = "NaN where eager has a number or an infinity"
"""Note of a comparison in which a candidate yields NaN, and may."""
MIN_OVERFLOWING_INPUT = 1e12
"""Smallest input whose product with two others like it is infinite in float32."""


def measure_finite_part(
    candidate: Tensor, eager: Tensor, exact: Tensor | None, *, draw: str, output: int = 0,
    kind: ArithmeticKind = ArithmeticKind.ROUNDED, eps: float = FP32_EPS, inputs: Sequence[Any] = (),
    moved: Callable[[], Tensor | StepReach] | None = None, explained: bool = True,
) -> ComparedOutput:  # fmt: skip
    """Compares an output of inputs with infinities: eager's infinities must be equal, and its
    numbers within tolerance.

    Elements are ignored if eager yields NaN, or if float64 and eager disagree about finiteness. NaN
    from a candidate states that it has no answer: accepted, with a note, if inputs overflow and the
    NaN stems from another element's infinity (an additive mask of -inf meets +inf in a row), but
    not from its own, nor in an output without arithmetic.
    """
    import torch

    if not (eager.is_floating_point() and candidate.shape == eager.shape):
        return measure(candidate, eager, exact, kind=kind, draw=draw, output=output)
    dtype, candidate, eager = eager.dtype, widened(candidate), widened(eager)
    exact = None if exact is None else widened(exact)
    settled = (
        torch.isfinite(eager) if exact is None else torch.isfinite(eager) & torch.isfinite(exact)
    )
    infinite = torch.isinf(eager) if exact is None else torch.isinf(eager) & torch.isinf(exact)
    silent = torch.isnan(candidate) & (settled | infinite)
    if inputs and not any(_holds_infinities(value) for value in inputs):
        # What divides by zero is infinite, and what a solve makes of that is NaN in another order of its sums.
        excused = silent & _in_open_slices(eager)
        settled, infinite, silent = (part & ~excused for part in (settled, infinite, silent))
    note = ""
    if bool(silent.any()):
        may_overflow = kind is not ArithmeticKind.EXACT and _may_overflow(inputs)
        if may_overflow and bool((silent & ~_where_own_input_is_infinite(silent, inputs)).any()):
            note = NO_ANSWER
        else:
            silent = torch.zeros_like(silent)
    lost = infinite & (candidate != eager) & ~silent
    if bool(lost.any()):
        hint = "An infinity among the inputs becomes another number, where the reference gives an infinity."
        return _wrong_where(lost, candidate, eager, draw, output, hint)
    keep = settled & ~silent
    compared = _measure_where(
        keep, candidate, eager, exact, moved,
        kind=kind, eps=eps, draw=draw, dtype=dtype, output=output, explained=explained,
    )  # fmt: skip
    may_cancel = kind is not ArithmeticKind.EXACT and not compared.check.passed
    if may_cancel and _is_within_cancellation(
        candidate.masked_fill(~keep, 0.0), eager.masked_fill(~keep, 0.0)
    ):
        passed = compared.check.with_(
            passed=True, note="off by less than sums of such numbers lose"
        )
        compared = compared.with_(check=passed, mismatch=None, fault=None, headroom=1.0)
    return compared.with_(check=compared.check.with_(note=note)) if note else compared


def _in_open_slices(eager: Tensor) -> Tensor:
    """Returns a boolean for each element, true in slices along the first dimension that are not finite throughout."""
    import torch

    is_open = ~torch.isfinite(eager)
    if eager.dim() < 2:
        return is_open
    slices = is_open.reshape(eager.shape[0], -1).any(-1)
    return slices.reshape(-1, *[1] * (eager.dim() - 1)).expand(eager.shape)


def _holds_infinities(value: object) -> bool:
    import torch

    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return is_float and bool(torch.isinf(widened(value)).any())


def _may_overflow(inputs: Sequence[Any]) -> bool:
    import torch

    floating = [
        widened(v)
        for v in inputs
        if isinstance(v, torch.Tensor) and v.is_floating_point() and v.numel()
    ]
    return any(
        float(v.abs().amax().nan_to_num(nan=math.inf)) >= MIN_OVERFLOWING_INPUT for v in floating
    )


def _measure_where(
    keep: Tensor, candidate: Tensor, eager: Tensor, exact: Tensor | None,
    moved: Callable[[], Tensor | StepReach] | None, **named: Any,
) -> ComparedOutput:  # fmt: skip
    """Compares the elements that are kept; the others count as right."""

    def filled(values: Tensor) -> Tensor:
        return values.masked_fill(~keep, 0.0)

    def moved_where_kept() -> Tensor | StepReach:
        assert moved is not None
        other = moved()
        return other if isinstance(other, StepReach) else filled(other)

    return measure(
        filled(candidate), filled(eager), None if exact is None else filled(exact),
        moved=None if moved is None else moved_where_kept, **named,
    )  # fmt: skip


def _wrong_where(
    wrong: Tensor, candidate: Tensor, eager: Tensor, draw: str, output: int, hint: str
) -> ComparedOutput:
    """Returns the comparison of an output with known wrong elements, with actual and expected
    values."""
    compared = ComparedOutput(
        check=Check(draw=draw, passed=False, max_error=math.inf), headroom=math.inf
    )
    explained = with_mismatch(compared, wrong, candidate, eager, output, hint)
    return explained.with_(fault=Fault.NON_FINITE)


def _is_within_cancellation(candidate: Tensor, eager: Tensor) -> bool:
    """Returns True if the difference is within the loss of a sum of the largest numbers.

    For huge inputs an element may be the remainder of a cancellation.
    """
    import torch

    share = min(MAX_CANCELLATION_ULPS * torch.finfo(eager.dtype).eps, MAX_CANCELLATION_SHARE)
    lost = share * eager.abs().amax().double()
    return bool(((candidate.double() - eager.double()).abs() <= lost).all())


def measure_with_nan(
    candidate: Tensor, eager: Tensor, exact: Tensor | None, *, draw: str, output: int = 0,
    kind: ArithmeticKind = ArithmeticKind.ROUNDED, eps: float = FP32_EPS,
    moved: Callable[[], Tensor | StepReach] | None = None, explained: bool = True,
) -> ComparedOutput:  # fmt: skip
    """Compares an output of inputs with NaN: NaN exactly where eager has it, the others as usual.

    Indices and booleans must equal eager's: in a row with NaN torch names the first. NaN converted
    to another integer type depends on the machine, and is not compared.
    """
    import torch

    if candidate.shape == eager.shape and eager.dtype in (torch.bool, torch.int64):
        is_index = eager >= 0  # a NaN that is converted is the smallest number
        compared = measure(
            torch.where(is_index, candidate, eager),
            eager,
            draw=draw,
            output=output,
            explained=explained,
        )
        hint = "With NaN among the inputs another index or truth than the reference's."
        return (
            compared
            if compared.mismatch is None
            else compared.with_(mismatch=compared.mismatch.with_(hint=hint))
        )
    if not (eager.is_floating_point() and candidate.shape == eager.shape):
        return ComparedOutput(check=Check(draw=draw, passed=True, note="not compared"))
    dtype, candidate, eager = eager.dtype, widened(candidate), widened(eager)
    exact = None if exact is None else widened(exact)
    wrong = torch.isnan(eager) != torch.isnan(candidate)
    if bool(wrong.any()):
        hint = "NaN among the inputs is lost, or made where the reference has a number."
        return _wrong_where(wrong, candidate, eager, draw, output, hint)
    keep = torch.isfinite(eager) if exact is None else torch.isfinite(eager) & torch.isfinite(exact)
    return _measure_where(
        keep, candidate, eager, exact, moved,
        kind=kind, eps=eps, draw=draw, dtype=dtype, output=output, explained=explained,
    )  # fmt: skip


def _where_own_input_is_infinite(output: Tensor, inputs: Sequence[Any]) -> Tensor:
    """Returns a mask of elements whose own input, at the same index of a tensor of the same shape,
    is infinite."""
    import torch

    mask = torch.zeros_like(output)
    for value in inputs:
        if (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.shape == output.shape
        ):
            mask |= torch.isinf(widened(value))
    return mask

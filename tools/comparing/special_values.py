"""Comparison of outputs whose inputs hold infinities or NaN: what is not finite has to be the same, and the rest is
compared as any other output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernelwright.tools.comparing.comparison import ComparedOutput, measure
from kernelwright.tools.comparing.tolerance import Tensor, widened
from kernelwright.tools.report import Check, Fault

MAX_CANCELLATION_ULPS, MAX_CANCELLATION_SHARE = 64, 1e-2
"""Units in the last place of the largest element, and its share at most, that an element may be off by where inputs
are huge.
"""


def measure_finite_part(
    candidate: Tensor, eager: Tensor, exact: Tensor | None, *, draw: str, output: int = 0, inputs: Sequence[Any] = (),
    moved: Callable[[], Tensor] | None = None, explained: bool = True,
) -> ComparedOutput:  # fmt: skip
    """Compares one output of inputs with infinities: where eager gives an infinity the candidate must give the same,
    where it gives a number that number.

    Where eager gives NaN, or float64 disagrees with eager about what is finite, nothing is asked. A candidate that
    gives NaN says itself that it has no answer: that is noted and allowed where it comes from another element's
    infinity (an additive mask of -inf meets +inf in a row), not where it is the element's own.
    """
    import torch

    if not (eager.is_floating_point() and candidate.shape == eager.shape):
        return measure(candidate, eager, exact, draw=draw, output=output)
    dtype, candidate, eager = eager.dtype, widened(candidate), widened(eager)
    exact = None if exact is None else widened(exact)
    settled = torch.isfinite(eager) if exact is None else torch.isfinite(eager) & torch.isfinite(exact)
    infinite = torch.isinf(eager) if exact is None else torch.isinf(eager) & torch.isinf(exact)
    silent = torch.isnan(candidate) & (settled | infinite)
    note = "NaN where eager has a number or an infinity" if bool(silent.any()) else ""
    if note and not bool((silent & ~_where_own_input_is_infinite(silent, inputs)).any()):
        silent, note = torch.zeros_like(silent), ""
    lost = infinite & (candidate != eager) & ~silent
    if bool(lost.any()):
        told = measure(lost.to(eager.dtype), torch.zeros_like(eager), draw=draw, output=output)
        hint = "An infinity among the inputs becomes a number, where the reference gives an infinity."
        return told.with_(mismatch=told.mismatch and told.mismatch.with_(hint=hint), fault=Fault.NON_FINITE)
    keep = settled & ~silent
    zero = torch.zeros((), dtype=eager.dtype, device=eager.device)
    precise = None if exact is None else torch.where(keep, exact, zero.to(exact.dtype))
    mine, theirs = torch.where(keep, candidate, zero), torch.where(keep, eager, zero)
    perturbed = None if moved is None else lambda: moved().masked_fill(~keep, 0.0)
    told = measure(mine, theirs, precise, draw=draw, dtype=dtype, output=output, moved=perturbed, explained=explained)
    if not told.check.passed and _is_within_cancellation(mine, theirs):
        passed = told.check.with_(passed=True, note="off by less than sums of such numbers lose")
        told = told.with_(check=passed, mismatch=None, fault=None, headroom=1.0)
    return told.with_(check=told.check.with_(note=note)) if note else told


def _is_within_cancellation(candidate: Tensor, eager: Tensor) -> bool:
    """Whether the difference is within what a sum of the largest numbers loses: of huge inputs an element may be
    all that is left of a cancellation.
    """
    import torch

    share = min(MAX_CANCELLATION_ULPS * torch.finfo(eager.dtype).eps, MAX_CANCELLATION_SHARE)
    lost = share * eager.abs().amax().double()
    return bool(((candidate.double() - eager.double()).abs() <= lost).all())


def measure_with_nan(
    candidate: Tensor, eager: Tensor, exact: Tensor | None, *, draw: str, output: int = 0,
    moved: Callable[[], Tensor] | None = None, explained: bool = True,
) -> ComparedOutput:  # fmt: skip
    """Compares one output of inputs with NaN: where eager gives NaN the candidate must, and nowhere else; the rest
    as any other. Indices and truths must be eager's: of a row with NaN torch names the first of them. What a NaN is
    as another whole number depends on the machine, and is not compared.
    """
    import torch

    if candidate.shape == eager.shape and eager.dtype in (torch.bool, torch.int64):
        known = eager >= 0  # a NaN that is converted is the smallest number
        told = measure(torch.where(known, candidate, eager), eager, draw=draw, output=output, explained=explained)
        hint = "With NaN among the inputs another index or truth than the reference's."
        return told if told.mismatch is None else told.with_(mismatch=told.mismatch.with_(hint=hint))
    if not (eager.is_floating_point() and candidate.shape == eager.shape):
        return ComparedOutput(check=Check(draw=draw, passed=True, note="not compared"))
    dtype, candidate, eager = eager.dtype, widened(candidate), widened(eager)
    exact = None if exact is None else widened(exact)
    wrong = torch.isnan(eager) != torch.isnan(candidate)
    if bool(wrong.any()):
        told = measure(wrong.to(eager.dtype), torch.zeros_like(eager), draw=draw, output=output)
        hint = "NaN among the inputs is lost, or made where the reference has a number."
        return told.with_(mismatch=told.mismatch and told.mismatch.with_(hint=hint), fault=Fault.NON_FINITE)
    keep, zero = torch.isfinite(eager), torch.zeros((), dtype=eager.dtype, device=eager.device)
    precise = None
    if exact is not None:
        keep = keep & torch.isfinite(exact)
        precise = torch.where(keep, exact, zero.to(exact.dtype))
    perturbed = None if moved is None else lambda: moved().masked_fill(~keep, 0.0)
    return measure(
        torch.where(keep, candidate, zero), torch.where(keep, eager, zero), precise, draw=draw, dtype=dtype,
        output=output, moved=perturbed, explained=explained,
    )  # fmt: skip


def _where_own_input_is_infinite(output: Tensor, inputs: Sequence[Any]) -> Tensor:
    """Where an element's own input, of the same place in a tensor of the same shape, is infinite."""
    import torch

    found = torch.zeros_like(output)
    for given in inputs:
        if isinstance(given, torch.Tensor) and given.is_floating_point() and given.shape == output.shape:
            found |= torch.isinf(widened(given))
    return found

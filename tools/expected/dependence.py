"""Checks whether a reference's answer depends on input elements that a kernel did not read.

Such a kernel gives the same answer for any values there. So the reference is run again with other
values: if its answer changes, the kernel is wrong for one of the two inputs. No tolerance is
involved. Example: `x.sum()` where the last 3 of 1,000 elements were not read: with x[997:] replaced
by another draw, the sum changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.expected.carriers import is_whole
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs, PreparedProblem, run_on
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.models.float64 import inputs_in_float64, model_in_float64
from kernelwright.tools.references.redrawing.domains import TWO_VALUES, Interval
from kernelwright.tools.references.redrawing.isolation import repeats_itself
from kernelwright.tools.report import Failed, Failure, Fault

if TYPE_CHECKING:
    import torch

TIMES_LARGEST = 4.0
"""Times the largest magnitude of an input: values that decide a maximum, a bound or a mean."""
LEAST_CHANGE = 1e-9, 1e-5
"""Relative to the largest output: smaller changes are rounding, of float64 and of eager."""
Unread = Sequence[tuple[int, Sequence[tuple[int, int]]]]
"""Positions of inputs, with ranges of their elements."""


def require_inputs_read(
    prepared: PreparedProblem, expected: ExpectedOutputs, unread: Unread
) -> None:
    """Raises Failed if the reference's answer on this draw depends on unread elements."""
    if prepared.random_outputs:
        return
    for index, ranges in unread:
        tensor = expected.inputs[index]
        mask = _mask(tensor, ranges)
        if mask is None or (not bool(mask.all()) and _is_read_in_part(prepared, tensor, index)):
            continue
        for values in _other_values(prepared, expected, index):
            changed = values.where(mask, tensor)
            if _changes_answer(prepared, expected, index, changed):
                message = _described(prepared.input_named(index), mask)
                raise Failed(Failure(fault=Fault.MISMATCH, message=message))


def _mask(tensor: Any, ranges: Sequence[tuple[int, int]]) -> torch.Tensor | None:
    """Returns a mask of these ranges; None if they do not fit the tensor."""
    import torch

    if (
        not isinstance(tensor, torch.Tensor)
        or not ranges
        or max(end for _, end in ranges) > tensor.numel()
    ):
        return None
    flat = torch.zeros(tensor.numel(), dtype=torch.bool, device=tensor.device)
    for begin, end in ranges:
        flat[begin:end] = True
    return flat.view(tensor.shape)


def _is_read_in_part(prepared: PreparedProblem, tensor: torch.Tensor, index: int) -> bool:
    """Returns True if a kernel may read only part of an input: symmetric matrices, repeated rows,
    and ordered numbers.

    Ordered numbers are offsets and permutations.
    """
    if prepared.domains[index] != TWO_VALUES and not tensor.is_complex() and repeats_itself(tensor):
        return True
    if tensor.is_complex() or tensor.dtype.itemsize == 1 or not tensor.dim() or tensor.numel() < 2:
        return False
    if bool((tensor.diff(dim=-1) >= 0).all()):
        return prepared.searches or is_whole(tensor)
    return is_whole(tensor) and bool(tensor.unique().numel() == tensor.numel())


def _other_values(
    prepared: PreparedProblem, expected: ExpectedOutputs, index: int
) -> Iterator[torch.Tensor]:
    """Yields legal values of an input: another draw of the problem, then values at the ends of its
    domain."""
    import torch

    tensor = expected.inputs[index]
    domain = prepared.domains[index]
    redrawn = prepared.reference.inputs(expected.rng + 1)[index]
    if isinstance(redrawn, torch.Tensor) and redrawn.shape == tensor.shape:
        yield redrawn.to(tensor.dtype)
    if tensor.dtype == torch.bool:
        yield ~tensor
    elif domain == TWO_VALUES:
        yield tensor.amin() + tensor.amax() - tensor
    elif tensor.is_floating_point() and tensor.itemsize > 1:
        finite = tensor[tensor.isfinite()]
        largest = float(finite.abs().max()) if finite.numel() else 1.0
        for value in (TIMES_LARGEST * largest + 1.0, -TIMES_LARGEST * largest - 1.0, 0.0):
            values = torch.full_like(tensor, value)
            if isinstance(domain, Interval):
                domain.keep(values)
            yield values
    elif tensor.is_complex():
        yield tensor + 1.0


def _changes_answer(
    prepared: PreparedProblem, expected: ExpectedOutputs, index: int, changed: torch.Tensor
) -> bool:
    """Returns True if the reference's answer changes with this input, in float64 if possible."""
    if bool((changed == expected.inputs[index]).all()):
        return False
    inputs = [*expected.inputs[:index], changed, *expected.inputs[index + 1 :]]
    exact = expected.exact
    try:
        if exact is not None:
            model = model_in_float64(expected.weights)
            return _differ(
                run_on(prepared, expected, model, inputs_in_float64(inputs)), exact, LEAST_CHANGE[0]
            )
        return _differ(
            run_on(prepared, expected, expected.weights, inputs), expected.eager, LEAST_CHANGE[1]
        )
    except ProblemError:
        return False


def _differ(answers: Sequence[Any], before: Sequence[Any], least: float) -> bool:
    """Returns True if a finite answer differs by more than rounding."""
    import torch

    for now, was in zip(answers, before, strict=True):
        if (
            not isinstance(now, torch.Tensor)
            or not isinstance(was, torch.Tensor)
            or now.shape != was.shape
        ):
            continue
        if is_whole(was):
            if not torch.equal(now, was):
                return True
            continue
        wide, earlier = (
            t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (now, was)
        )
        finite = wide.isfinite() & earlier.isfinite()
        if not bool(finite.any()):
            continue
        scale = max(float(earlier[finite].abs().max()), float(wide[finite].abs().max()))
        if float((wide - earlier)[finite].abs().max()) > least * scale:
            return True
    return False


def _described(name: str, mask: torch.Tensor) -> str:
    if bool(mask.all()):
        return f"{name} is never read, and the answer depends on it"
    first = [int(index) for index in mask.nonzero()[0]]
    count = int(mask.sum())
    return (
        f"{count} of {mask.numel()} elements of {name} are never read, the first at {first}, and the answer depends on "
        "them"
    )

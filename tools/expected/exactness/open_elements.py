"""Finds elements of which nothing is asked: those that follow from a float which no integer type can hold (NaN, an
infinity, a number out of range: what a cast makes of it differs between processors), those for which a function as
kernels write it has no answer (tanh of an infinity by exp), and those for which the reference itself has none where its
intermediate results are rounded otherwise (softmax of scores over 2^30, half a unit of whose last place is over 88).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from kernelwright.tools.expected.exactness.usual_forms import usual_forms
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs, PreparedProblem, run_on
from kernelwright.tools.numerics.bits import same_bits
from kernelwright.tools.numerics.tolerance import is_float8
from kernelwright.tools.problem import ProblemError

if TYPE_CHECKING:
    import torch

FILLERS = (3, 5)
"""Whole numbers that stand for the result of such a cast, one in each run."""


def fill_open_elements(
    prepared: PreparedProblem, expected: ExpectedOutputs, number: int, candidate: torch.Tensor
) -> torch.Tensor | None:
    """Returns the candidate's output `number` with eager's values where nothing is asked; None where that is nowhere.
    Where a function has no answer, it is NaN alone that is let pass, and numbers that are not finite where other
    roundings leave none.
    """
    import torch

    eager = expected.eager[number]
    undefined = where_casts_are_undefined(prepared, expected)[number]
    if candidate.is_floating_point() and not is_float8(candidate.dtype):
        for failing, silent in (
            (where_usual_forms_fail, torch.isnan(candidate)),
            (where_other_roundings_fail, ~torch.isfinite(candidate) & torch.isfinite(eager)),
        ):
            known = silent if undefined is None else silent & ~undefined
            if (
                bool(known.any())
                and (open_elements := failing(prepared, expected)[number]) is not None
            ):
                silent &= open_elements
                undefined = silent if undefined is None else undefined | silent
    if undefined is None or not bool(undefined.any()):
        return None
    return torch.where(undefined, eager, candidate)


def where_casts_are_undefined(
    prepared: PreparedProblem, expected: ExpectedOutputs
) -> list[torch.Tensor | None]:
    """Returns a boolean for each element of each output, true where it follows from a cast without a defined result;
    None for an output without such elements.
    """
    import torch

    runs: list[list[Any]] = []
    with contextlib.suppress(ProblemError, torch.cuda.OutOfMemoryError):
        for filler in FILLERS:
            with casts_without_result(filler) as mode:
                runs.append(run_on(prepared, expected, expected.weights, expected.inputs))
            if not mode.seen:
                break
    if len(runs) < len(FILLERS):
        return [None] * len(expected.eager)
    return [_differing(one, other) for one, other in zip(*runs, strict=True)]


def where_usual_forms_fail(
    prepared: PreparedProblem, expected: ExpectedOutputs
) -> list[torch.Tensor | None]:
    """Returns a boolean for each element of each floating output, true where functions by exp and log have no answer
    (`inf / inf`) and eager has one; None for every other output.
    """
    import torch

    found: list[torch.Tensor | None] = [None] * len(expected.eager)
    with contextlib.suppress(ProblemError, torch.cuda.OutOfMemoryError), usual_forms() as forms:
        made = run_on(prepared, expected, expected.weights, expected.inputs)
        if forms.seen:
            found = [
                _nan_where_float(other, eager)
                for other, eager in zip(made, expected.eager, strict=True)
            ]
    return found


def where_other_roundings_fail(
    prepared: PreparedProblem, expected: ExpectedOutputs
) -> list[torch.Tensor | None]:
    """Returns a boolean for each element of each floating output, true in rows where the reference is not finite once
    its intermediate results are rounded otherwise, with functions as torch has them; None for every other output.
    """
    import torch

    from kernelwright.tools.expected.exactness.random_rounding import outputs_rounded_at_random

    failing: list[torch.Tensor | None] = [None] * len(expected.eager)
    with contextlib.suppress(ProblemError, torch.cuda.OutOfMemoryError):
        for outputs in outputs_rounded_at_random(prepared, expected, in_usual_forms=False):
            for number, (output, eager) in enumerate(zip(outputs, expected.eager, strict=True)):
                if (
                    isinstance(output, torch.Tensor)
                    and output.is_floating_point()
                    and output.shape == eager.shape
                ):
                    fails = ~torch.isfinite(output)
                    fails = fails.any(-1, keepdim=True).expand_as(fails) if fails.dim() else fails
                    earlier = failing[number]
                    failing[number] = fails if earlier is None else earlier | fails
    return failing


def _nan_where_float(other: Any, eager: Any) -> torch.Tensor | None:
    import torch

    if (
        not isinstance(other, torch.Tensor)
        or not other.is_floating_point()
        or other.shape != eager.shape
    ):
        return None
    return torch.isnan(other) & ~torch.isnan(eager)


def _differing(one: Any, other: Any) -> torch.Tensor | None:
    import torch

    if not isinstance(one, torch.Tensor) or one.shape != other.shape or same_bits(one, other):
        return None
    return (one != other) & ~(torch.isnan(one) & torch.isnan(other))


def casts_without_result(filler: int) -> Any:
    """A mode in which casts of floats that their integer type cannot hold give `filler`. Its `seen` counts them."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from kernelwright.tools.operators.dispatch import without_dynamo

    @without_dynamo
    class Casts(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__
            source = args[1] if name == "copy_" else args[0] if name == "_to_copy" else None
            if source is None or not source.is_floating_point() or not _is_integer(made.dtype):
                return made
            limits = torch.iinfo(made.dtype)
            cut = source.double().trunc()
            held = (cut >= float(limits.min)) & (cut < float(limits.max) + 1)
            if bool(held.all()):
                return made
            self.seen += 1
            result = torch.where(held, made, filler).to(made.dtype)
            return made.copy_(result) if name == "copy_" else result

    return Casts()


def _is_integer(dtype: torch.dtype) -> bool:
    import torch

    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)

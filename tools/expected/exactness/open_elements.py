"""Finds output elements without a required value.

These depend on a float that its target integer type cannot hold (NaN, an infinity, a number out of
range: results of such casts differ between processors), or have no answer in a function's usual
form in kernels (tanh of an infinity by exp), or none in the reference itself once its intermediate
results are rounded differently (softmax of scores over 2^30, for which half an ulp exceeds 88).
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
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types

FILLERS = (3, 5)
"""Integers that replace the result of such a cast, one per run."""


def fill_open_elements(
    prepared: PreparedProblem, expected: ExpectedOutputs, number: int, candidate: torch.Tensor
) -> torch.Tensor | None:
    """Returns the candidate's output `number` with eager's values at elements without a required
    value; None without any.

    If a function has no answer, only NaN is accepted; if other roundings have none, any non-finite
    number.
    """
    import torch

    eager = expected.eager[number]
    undefined = where_casts_are_undefined(prepared, expected)[number]
    if candidate.is_floating_point() and not is_float8(candidate.dtype):
        for failing, silent in (
            (where_usual_forms_fail, torch.isnan(candidate)),
            (where_other_roundings_fail, ~torch.isfinite(candidate) & torch.isfinite(eager)),
        ):
            candidates = silent if undefined is None else silent & ~undefined
            if (
                bool(candidates.any())
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
    """Returns a boolean for each element of each output, true if it depends on a cast without a
    defined result.

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
    return [_differing(first, second) for first, second in zip(*runs, strict=True)]


def where_usual_forms_fail(
    prepared: PreparedProblem, expected: ExpectedOutputs
) -> list[torch.Tensor | None]:
    """Returns a boolean for each element of each floating output, true if functions by exp and log
    fail (`inf / inf`) and eager does not.

    None for every other output.
    """
    import torch

    masks: list[torch.Tensor | None] = [None] * len(expected.eager)
    with contextlib.suppress(ProblemError, torch.cuda.OutOfMemoryError), usual_forms() as forms:
        outputs = run_on(prepared, expected, expected.weights, expected.inputs)
        if forms.seen:
            masks = [
                _nan_where_float(output, eager)
                for output, eager in zip(outputs, expected.eager, strict=True)
            ]
    return masks


def where_other_roundings_fail(
    prepared: PreparedProblem, expected: ExpectedOutputs
) -> list[torch.Tensor | None]:
    """Returns a boolean for each element of each floating output, true in rows in which the
    reference with other roundings is not finite.

    Functions are torch's. None for every other output.
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


def _nan_where_float(other: Any, eager: torch.Tensor) -> torch.Tensor | None:
    import torch

    if (
        not isinstance(other, torch.Tensor)
        or not other.is_floating_point()
        or other.shape != eager.shape
    ):
        return None
    return torch.isnan(other) & ~torch.isnan(eager)


def _differing(first: Any, second: Any) -> torch.Tensor | None:
    import torch

    if (
        not isinstance(first, torch.Tensor)
        or first.shape != second.shape
        or same_bits(first, second)
    ):
        return None
    return (first != second) & ~(torch.isnan(first) & torch.isnan(second))


def casts_without_result(filler: int) -> Any:
    """Returns a mode in which undefined casts of floats to integers yield `filler`, and whose
    `seen` counts them."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from kernelwright.tools.operators.dispatch import without_dynamo

    @without_dynamo
    class Casts(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            converted = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__
            source = args[1] if name == "copy_" else args[0] if name == "_to_copy" else None
            if source is None or not source.is_floating_point() or not _is_integer(converted.dtype):
                return converted
            limits = torch.iinfo(converted.dtype)
            cut = source.double().trunc()
            is_representable = (cut >= float(limits.min)) & (cut < float(limits.max) + 1)
            if bool(is_representable.all()):
                return converted
            self.seen += 1
            result = torch.where(is_representable, converted, filler).to(converted.dtype)
            return converted.copy_(result) if name == "copy_" else result

    return Casts()


def _is_integer(dtype: torch.dtype) -> bool:
    import torch

    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)

"""Finds outputs that follow from a float which no integer type can hold: NaN, an infinity, a number out of range.
What a cast makes of it differs between processors, so nothing is asked of such elements.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from kernelwright.tools.comparing.bits import same_bits
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.prepared_problem import ExpectedOutputs, PreparedProblem, run_on

if TYPE_CHECKING:
    import torch

FILLERS = (3, 5)
"""Whole numbers that stand for the result of such a cast, one in each run."""


def open_elements(prepared: PreparedProblem, expected: ExpectedOutputs) -> list[torch.Tensor | None]:
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


def _differing(one: Any, other: Any) -> torch.Tensor | None:
    import torch

    if not isinstance(one, torch.Tensor) or one.shape != other.shape or same_bits(one, other):
        return None
    return (one != other) & ~(torch.isnan(one) & torch.isnan(other))


def casts_without_result(filler: int) -> Any:
    """A mode in which casts of floats that their integer type cannot hold give `filler`. Its `seen` counts them."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from kernelwright.tools.references.dispatch import without_dynamo

    @without_dynamo
    class Casts(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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

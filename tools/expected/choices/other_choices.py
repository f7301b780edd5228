"""What the reference would have given, had it chosen otherwise among equals.

Which of equal values `topk` names, and which a sort puts first that is not asked to be stable, torch leaves open; which
of two values that differ by less than honest arithmetic is off by is larger, a rounding decides. A kernel may choose
otherwise there than torch, and then everything that follows from the choice differs: the parents and tokens of a beam's
step, the boxes of a detection. So the reference is run again with other choices, the same ones in float64 and as eager,
and the candidate is right where it agrees with one of those runs in all of its outputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kernelwright.tools.expected.choices.near_ties import (
    IndexCall,
    IndexRecorder,
    allowed_ulps,
    index_calls,
    is_as_good,
)
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs, PreparedProblem, run_on
from kernelwright.tools.numerics.tolerance import Tensor, allowance
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.models.float64 import inputs_in_float64, model_in_float64

CHOOSING_FUNCTIONS = ("topk", "sort", "argsort", "max", "min", "argmax", "argmin")
"""Functions of torch that choose among the values of a slice."""
MAX_REORDERINGS = 6
"""How often near equals are put in another order."""


class ChoiceMode:
    """Runs of the reference whose choices are ours. `made` holds the indices of the run in float64, call by call."""

    def __init__(self, kind: str, calls: list[tuple[IndexCall, IndexCall]], seed: int = 0) -> None:
        """kind: first, last or moved. calls: of the reference as it is, in float64 and as eager."""
        self.differs = False
        self.made: list[Tensor] = []
        self._kind, self._calls, self._seed = kind, calls, seed

    def mode(self, *, again: bool = False) -> Any:
        """A torch function mode; again: the choices of the run before are made once more."""
        from torch.overrides import TorchFunctionMode

        outer, number = self, [0]

        class Mode(TorchFunctionMode):
            def __torch_function__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                named = kwargs or {}
                out = func(*args, **named)
                if getattr(func, "__name__", "") not in CHOOSING_FUNCTIONS or "out" in named:
                    return out
                found = outer._choice(func, out, args, named, number[0] if again else None)
                number[0] += found is not None
                return out if found is None else found

        return Mode()

    def _choice(
        self, func: Any, out: Any, args: Any, named: dict[str, Any], number: int | None
    ) -> Any:
        """The same result with our indices; None where it has none, or where they are of all elements."""
        import torch

        (call,) = index_calls(func, out, args, named, CHOOSING_FUNCTIONS) or (None,)
        if call is None or call.dim is None:
            return None
        kept = call.indices.dim() == call.values.dim()
        if number is None:
            indices = self._indices(func, call, args, named)
            self.differs |= not bool((indices == call.indices).all())
            self.made.append(indices)
        else:
            indices = self.made[number]
        if isinstance(out, torch.Tensor):
            return indices
        values = call.values.gather(call.dim, indices if kept else indices.unsqueeze(call.dim))
        return type(out)((values if kept else values.squeeze(call.dim), indices))

    def _indices(self, func: Any, call: IndexCall, args: Any, named: dict[str, Any]) -> Tensor:
        import torch

        place = len(self.made)
        given = {k: v for k, v in named.items() if k != "input"}
        if self._kind == "moved":
            known = self._calls[place] if place < len(self._calls) else None
            if known is None or known[0].values.shape != call.values.shape:
                return call.indices
            made = func(_reordered(call, known[1], self._seed), *args[1:], **given)
            return made if isinstance(made, torch.Tensor) else made.indices
        if not call.several or call.stable:
            return call.indices
        assert call.dim is not None
        largest = _is_descending(func, args, named)
        turned = call.values.flip(call.dim) if self._kind == "last" else call.values
        found = torch.sort(turned, dim=call.dim, descending=largest, stable=True).indices
        found = found.narrow(call.dim, 0, call.indices.shape[call.dim])
        return call.values.shape[call.dim] - 1 - found if self._kind == "last" else found


def _is_descending(func: Any, args: Any, named: dict[str, Any]) -> bool:
    """Whether `topk` or a sort gives the largest value first."""
    place, name, default = (
        (3, "largest", True) if func.__name__ == "topk" else (2, "descending", False)
    )
    return bool(args[place] if len(args) > place else named.get(name, default))


def _reordered(exact: IndexCall, eager: IndexCall, seed: int) -> Tensor:
    """The values, each moved by less than honest arithmetic is off by; equal ones equally, so that they stay equal."""
    import torch

    assert exact.dim is not None
    values, allow = exact.values, allowance(eager.values.dtype)
    ulps = allowed_ulps(exact, eager)
    finite = values.masked_fill(~values.isfinite(), 0.0)
    noise = (
        (eager.values.double() - values)
        .nan_to_num(0.0, 0.0, 0.0)
        .abs()
        .amax(exact.dim, keepdim=True)
    )
    allowed = allow.factor * noise + ulps * finite.abs().amax(exact.dim, keepdim=True)
    turns = finite / allowed.clamp(min=torch.finfo(torch.float32).tiny) * (997 + 2 * seed)
    return values + allowed * torch.sin(turns) / 2


def other_choices(run: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Outputs in float64 and as eager of runs that choose otherwise among equals.

    run: gives the outputs, in float64 where it is asked for with True. Nothing comes where the reference chooses
    nothing, or where there is but one choice.
    """
    exact, eager = IndexRecorder(CHOOSING_FUNCTIONS), IndexRecorder(CHOOSING_FUNCTIONS)
    with exact.noting():
        run(True)
    if not exact.calls:
        return
    with eager.noting():
        run(False)
    calls = list(zip(exact.calls, eager.calls, strict=False))
    for choosing in (
        ChoiceMode("first", calls), ChoiceMode("last", calls),
        *(ChoiceMode("moved", calls, seed) for seed in range(MAX_REORDERINGS)),
    ):  # fmt: skip
        with choosing.mode():
            precise = run(True)
        if choosing.differs:
            with choosing.mode(again=True):
                rounded = run(False)
            yield precise, rounded


def expected_of_other_choices(
    prepared: PreparedProblem, expected: ExpectedOutputs
) -> Iterator[ExpectedOutputs]:
    """The same draw with what should come of it where the reference chooses otherwise among equals."""
    import torch

    def run(exact: bool) -> list[Any]:
        if exact:
            return run_on(
                prepared,
                expected,
                model_in_float64(expected.weights),
                inputs_in_float64(expected.inputs),
            )
        return run_on(prepared, expected, expected.weights, expected.inputs)

    if expected.exact is None:
        return
    with contextlib.suppress(ProblemError, torch.cuda.OutOfMemoryError):
        for exact, eager in other_choices(run):
            yield replace(expected, exact=exact, eager=eager)


def names_equal_values(
    prepared: PreparedProblem, expected: ExpectedOutputs, number: int, index: Any
) -> bool:
    """Whether a candidate's whole numbers are indices of values as good as those that the reference's name
    (tools/expected/choices/near_ties.py).
    """
    import torch

    if expected.exact is None:
        return False
    exact, eager = IndexRecorder(), IndexRecorder()
    try:
        with exact.noting():
            outputs = run_on(
                prepared,
                expected,
                model_in_float64(expected.weights),
                inputs_in_float64(expected.inputs),
            )
        if not exact.calls:
            return False
        with eager.noting():
            run_on(prepared, expected, expected.weights, expected.inputs)
        return is_as_good(index, outputs[number], exact.calls, eager.calls)
    except (ProblemError, torch.cuda.OutOfMemoryError):
        return False

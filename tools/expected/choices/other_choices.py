"""Computes outputs of the reference under other choices among equals.

torch does not specify which of equal values `topk` selects, nor the order of equals in an unstable
sort; of two values that differ by less than honest errors, a rounding decides which is larger. A
kernel may choose differently from torch, and all dependent results differ: parents and tokens of a
beam step, boxes of a detection. So the reference is run again with other choices, equal in float64
and eager, and the candidate is correct if all its outputs agree with one of these runs.

Example: topk(k=1) of [2.0, 2.0] selects index 0 in torch, and the output is table[0]. The run with
last choices selects index 1, and expects table[1]; a candidate with indices [1] and output table[1]
is correct, with [1] and table[0] wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
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
from kernelwright.torch_calls import Args, Kwargs, Types

CHOOSING_FUNCTIONS = ("topk", "sort", "argsort", "max", "min", "argmax", "argmin")
"""Functions of torch that choose among the values of a slice."""
MAX_REORDERINGS = 6
"""How often near equals are put in another order."""


class ChoiceMode:
    """Runs of the reference with prescribed choices. `chosen_indices` holds the indices of the
    float64 run, by call."""

    def __init__(self, kind: str, calls: list[tuple[IndexCall, IndexCall]], seed: int = 0) -> None:
        """kind: first, last or moved. calls: those of the unchanged reference, in float64 and as
        eager."""
        self.differs = False
        self.chosen_indices: list[Tensor] = []
        self._kind = kind
        self._calls = calls
        self._seed = seed

    def mode(self, *, repeat: bool = False) -> Any:
        """Returns a torch function mode; repeat: repeats the choices of the previous run."""
        from torch.overrides import TorchFunctionMode

        outer, number = self, [0]

        class OtherChoices(TorchFunctionMode):
            def __torch_function__(
                self, func: Callable[..., Any], types: Types, args: Args = (), kwargs: Kwargs = None
            ) -> Any:
                named = kwargs or {}
                out = func(*args, **named)
                if getattr(func, "__name__", "") not in CHOOSING_FUNCTIONS or "out" in named:
                    return out
                chosen = outer._choice(func, out, args, named, number[0] if repeat else None)
                number[0] += chosen is not None
                return out if chosen is None else chosen

        return OtherChoices()

    def _choice(
        self,
        func: Callable[..., Any],
        out: Any,
        args: Sequence[Any],
        named: dict[str, Any],
        number: int | None,
    ) -> Any:
        """Returns the result with prescribed indices; None if it has none, or if they range over
        all elements."""
        import torch

        (call,) = index_calls(func, out, args, named, CHOOSING_FUNCTIONS) or (None,)
        if call is None or call.dim is None:
            return None
        keeps_dim = call.indices.dim() == call.values.dim()
        if number is None:
            indices = self._indices(func, call, args, named)
            self.differs |= not bool((indices == call.indices).all())
            self.chosen_indices.append(indices)
        else:
            indices = self.chosen_indices[number]
        if isinstance(out, torch.Tensor):
            return indices
        values = call.values.gather(call.dim, indices if keeps_dim else indices.unsqueeze(call.dim))
        return type(out)((values if keeps_dim else values.squeeze(call.dim), indices))

    def _indices(
        self, func: Callable[..., Any], call: IndexCall, args: Sequence[Any], named: dict[str, Any]
    ) -> Tensor:
        import torch

        call_index = len(self.chosen_indices)
        named_arguments = {k: v for k, v in named.items() if k != "input"}
        if self._kind == "moved":
            original_calls = self._calls[call_index] if call_index < len(self._calls) else None
            if original_calls is None or original_calls[0].values.shape != call.values.shape:
                return call.indices
            result = func(
                _reordered(call, original_calls[1], self._seed), *args[1:], **named_arguments
            )
            return result if isinstance(result, torch.Tensor) else result.indices
        if not call.several or call.stable:
            return call.indices
        assert call.dim is not None
        largest = _is_descending(func, args, named)
        turned = call.values.flip(call.dim) if self._kind == "last" else call.values
        order = torch.sort(turned, dim=call.dim, descending=largest, stable=True).indices
        order = order.narrow(call.dim, 0, call.indices.shape[call.dim])
        return call.values.shape[call.dim] - 1 - order if self._kind == "last" else order


def _is_descending(func: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]) -> bool:
    """Returns True if `topk` or a sort yields the largest value first."""
    position, name, default = (
        (3, "largest", True) if func.__name__ == "topk" else (2, "descending", False)
    )
    return bool(args[position] if len(args) > position else named.get(name, default))


def _reordered(exact: IndexCall, eager: IndexCall, seed: int) -> Tensor:
    """Returns the values, each moved by less than honest errors; equal values equally, so that they
    stay equal."""
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
    """Yields outputs in float64 and as eager of runs with other choices among equals.

    run: returns the outputs, in float64 if called with True. Yields nothing if the reference makes
    no choices, or has no alternative.
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
            with choosing.mode(repeat=True):
                rounded = run(False)
            yield precise, rounded


def expected_of_other_choices(
    prepared: PreparedProblem, expected: ExpectedOutputs
) -> Iterator[ExpectedOutputs]:
    """Yields the draw with the expected outputs of other choices among equals."""
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
    """Returns True if a candidate's integers are indices of values as good as the reference's.

    See tools/expected/choices/near_ties.py.
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

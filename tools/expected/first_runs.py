"""Measurements of a problem's first runs: random outputs, aliases of inputs, and the time in float64."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kernelwright.tools.nested import tensors_of_model
from kernelwright.tools.numerics.bits import same_bits
from kernelwright.tools.references.models.float64 import inputs_in_float64, model_in_float64

if TYPE_CHECKING:
    import torch

    from kernelwright.tools.expected.prepared_problem import PreparedProblem
    from kernelwright.tools.references.reference import Reference


def inputs_before_run(
    reference: Reference, inputs: list[Any], held: list[Any], mutated: frozenset[int]
) -> list[Any]:
    """Returns the inputs as before forward changed some of them; large changed inputs are drawn
    again.
    """
    if not mutated:
        return inputs
    again = reference.inputs(1) if any(held[i].copy is None for i in mutated) else inputs
    before: list[Any] = []
    for index, value in enumerate(inputs):
        if index not in mutated:
            before.append(value)
        elif held[index].copy is None:
            before.append(again[index])
        else:
            before.append(held[index].copy)
    return before


def find_random_outputs(
    prepared: PreparedProblem, arguments: list[Any], outputs: list[Any]
) -> None:
    """Notes the outputs which differ between two runs with different generator states on the same
    inputs.

    A third run, in the first state, must agree with the first; otherwise the reference is not
    deterministic for other reasons, and nothing is noted. Operations are counted in the second
    run.
    """
    import torch

    from kernelwright.tools.comparing.exactness.kind_tracker import KindTracker
    from kernelwright.tools.operators.operators import count_operations

    def copied() -> list[Any]:
        return [
            v.clone() if i in prepared.mutated and isinstance(v, torch.Tensor) else v
            for i, v in enumerate(arguments)
        ]

    def run(rng: int, inputs: list[Any]) -> list[Any]:
        return prepared.reference.run(prepared.model, inputs, rng)

    runs: list[list[Any]] = []
    try:
        worked = copied()
        tracker = KindTracker([*worked, *tensors_of_model(prepared.model)])
        with tracker:
            counted = count_operations(lambda: runs.append(run(2, worked)))
        prepared.searches = counted.searches
        prepared.exponentiates_products = counted.exponentiates_products
        prepared.reference.sorts = counted.sorts
        prepared.mixes_elements = counted.mixes_elements
        changed = [worked[i] for i in sorted(prepared.mutated)]
        prepared.shows_rounding = not tracker.hides_rounding
        prepared.kinds = tuple(tracker.kind_of(o) for o in [*runs[0], *changed])
        if prepared.reference.device == "cpu":
            prepared.operations = counted.operations
        moved = _differing(outputs, runs[0])
        if not moved or _differing(outputs, run(1, copied())):
            return
    except torch.cuda.OutOfMemoryError:
        return
    prepared.random_outputs = moved
    prepared.notes.append(prepared.randomness)


def _differing(ones: list[Any], second_run: list[Any]) -> tuple[int, ...]:
    """Places at which two lists of outputs are not the same, bit for bit."""
    import torch

    return tuple(
        index
        for index, (first, other) in enumerate(zip(ones, second_run, strict=True))
        if (
            not same_bits(first, other)
            if isinstance(first, torch.Tensor) and isinstance(other, torch.Tensor)
            else False
        )
    )


def aliased_input(output: torch.Tensor, inputs: list[Any]) -> int | None:
    """Returns the index of the input whose storage an output shares; None if there is none."""
    import torch

    for index, tensor in enumerate(inputs):
        if (
            isinstance(tensor, torch.Tensor)
            and isinstance(output, torch.Tensor)
            and tensor.numel()
            and output.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
        ):
            return index
    return None


def time_in_float64(prepared: PreparedProblem, inputs: list[Any]) -> float | None:
    """Returns the seconds of a run in float64; None if it fails."""
    import torch

    try:
        start = time.monotonic()
        prepared.reference.run(model_in_float64(prepared.model), inputs_in_float64(inputs), 1)
        if prepared.reference.device != "cpu":
            torch.cuda.synchronize()
        return time.monotonic() - start
    except (RuntimeError, ValueError, TypeError, torch.cuda.OutOfMemoryError):
        return None

"""Runs the reference on inputs near a draw's: the deviation allowed to an honest candidate of an
ill-conditioned problem.

Works in pieces with few tensors at a time, each of which may take gigabytes.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.comparing.exactness.steps import StepReach, raise_reach
from kernelwright.tools.expected.choices.near_ties import naming_equals
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs, PreparedProblem, run_on
from kernelwright.tools.numerics.pieces import distance, raise_to_distance
from kernelwright.tools.numerics.tolerance import (
    perturb,
    real_parts,
    scale_towards_zero,
    with_other_strides,
)
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.models.float64 import inputs_in_float64, model_in_float64

if TYPE_CHECKING:
    import torch


PERTURBATION_ULPS, ROW_PERTURBATIONS = 16, 3
"""Range of input perturbations in ulps, and number of repetitions with whole rows."""
HALF_PERTURBATION_ULPS = 2
"""Range for 16-bit inputs, whose ulp is as large as the noise of arithmetic on them."""
NOISY_RUNS = 2
"""How often each kind of noise is drawn for an output that steps, each time with its mirror image."""
NEARBY_INPUTS = 4
"""Number of nearby inputs at which eager's own error is measured if that of a draw may be small by
chance."""


def may_move(
    expected: ExpectedOutputs, number: int, kind: ArithmeticKind, *, at_size: bool
) -> bool:
    """Returns True if output `number` may deviate by the reference's own sensitivity.

    False if no operator rounds; and, without steps, on the problem's own inputs at its own size,
    where eager's error suffices.
    """
    if kind is not ArithmeticKind.ROUNDED or expected.exact is None:
        return kind is not ArithmeticKind.EXACT
    return at_size or expected.draw != "own"


def steps_of_outputs(
    prepared: PreparedProblem, expected: ExpectedOutputs
) -> list[StepReach | None]:
    """Runs the reference on perturbed inputs several times; returns each output's distance from
    float64's, None for other values.

    Each perturbation is also mirrored: an element exactly on a step, as half an integer before
    rounding, crosses it in one of the two.
    """
    import torch

    exact = expected.eager if expected.exact is None else expected.exact
    reaches, unit_reaches = ([_zero_reach(r) for r in exact] for _ in range(2))
    _raise_reaches(reaches, expected.eager, exact)
    with contextlib.suppress(ProblemError, torch.cuda.OutOfMemoryError):
        seeds = range(expected.rng, expected.rng + NOISY_RUNS)
        for seed, mirrored in itertools.product(seeds, (False, True)):
            inputs = perturb(expected.inputs, seed, 1, 1, mirrored=mirrored)
            unit = run_on(prepared, expected, expected.weights, inputs)
            _raise_reaches(unit_reaches, unit, exact)
            for by_rows in (False, True):
                outputs = run_on(
                    prepared, expected, expected.weights, _moved(expected, seed, by_rows, mirrored)
                )
                _raise_reaches(reaches, outputs, exact)
    pairs = zip(reaches, unit_reaches, strict=True)
    return [
        None if reach is None or unit is None else StepReach(reach, unit) for reach, unit in pairs
    ]


def _moved(
    expected: ExpectedOutputs, seed: int, by_rows: bool = False, mirrored: bool = False
) -> list[Any]:
    """Returns the inputs moved as far as an honest candidate's arithmetic may move them."""
    return perturb(
        expected.inputs,
        seed,
        PERTURBATION_ULPS,
        HALF_PERTURBATION_ULPS,
        by_rows=by_rows,
        mirrored=mirrored,
    )


def _zero_reach(output: object) -> Any:
    """Returns zeros for each real part of an output; None for values that are no tensors."""
    import torch

    if not isinstance(output, torch.Tensor):
        return None
    return torch.zeros(real_parts(output).shape, dtype=torch.float32, device=output.device)


def _raise_reaches(reaches: list[Any], moved: list[Any], exact: list[Any]) -> None:
    for reach, other, r in zip(reaches, moved, exact, strict=True):
        if reach is not None and other.shape == r.shape:
            raise_reach(reach, real_parts(other), real_parts(r))


def outputs_of_perturbed_inputs(prepared: PreparedProblem, expected: ExpectedOutputs) -> list[Any]:
    """Returns the expected outputs, moved by the least deviation that an honest candidate may have;
    `measure` takes them as `perturbed`.

    The reference on inputs moved by a few ulps shows ill-conditioning in the inputs: each element
    independently, and each row as a whole, as rounding moves a sum of equal terms. A single such
    move may leave a row unchanged by chance, hence several. None shows intermediate losses: near -1
    little of 1 + tanh(x) remains, and in a constant row eager may be correct throughout by chance.
    So floating outputs deviate at least as much as other roundings of intermediate results
    (exactness/random_rounding.py), and as the selection among equal values by `topk`.
    """
    import torch

    from kernelwright.tools.expected.exactness.random_rounding import outputs_rounded_at_random

    if expected.special() and expected.exact is not None:
        return _outputs_as_wrong_as_eager_nearby(prepared, expected)
    inputs = _moved(expected, expected.rng)
    perturbed = run_on(prepared, expected, expected.weights, inputs)
    if expected.exact is None:
        return perturbed
    try:
        off = [_distance_of_floats(r, s) for r, s in zip(expected.exact, perturbed, strict=True)]
    except torch.cuda.OutOfMemoryError:
        return perturbed
    perturbed = [s if gap is None else None for s, gap in zip(perturbed, off, strict=True)]
    with contextlib.suppress(ProblemError, torch.cuda.OutOfMemoryError):
        for seed in range(expected.rng + 1, expected.rng + 1 + ROW_PERTURBATIONS):
            inputs = _moved(expected, seed, by_rows=True)
            other = run_on(prepared, expected, expected.weights, inputs)
            _raise_to_distances(off, expected.exact, other)
        for last in (False, True):
            with (naming := naming_equals(last)):
                other = run_on(prepared, expected, expected.weights, expected.inputs)
            if naming.seen:
                _raise_to_distances(off, expected.exact, other)
        del other
        for outputs in outputs_rounded_at_random(prepared, expected):
            _raise_to_distances(off, expected.exact, outputs)
            del outputs  # before the next are worked out
    return [
        s if gap is None else _add_distance(r, gap)
        for r, s, gap in zip(expected.exact, perturbed, off, strict=True)
    ]


def _outputs_as_wrong_as_eager_nearby(
    prepared: PreparedProblem, expected: ExpectedOutputs
) -> list[Any]:
    """Returns the expected outputs, moved by eager's errors on inputs with other strides, and on
    nearby inputs.

    For infinite or huge inputs an output may be the remainder of a cancellation, which eager
    computes correctly by chance. Of two millions that torch adds first nothing is lost, in an order
    determined by its layout alone. Perturbation by ulps would allow too much: of two equal millions
    softmax would select one.
    """
    import torch

    assert expected.exact is not None
    off = [_distance_of_floats(r, e) for r, e in zip(expected.exact, expected.eager, strict=True)]
    with contextlib.suppress(ProblemError, torch.cuda.OutOfMemoryError):
        for seed in range(expected.rng, expected.rng + NEARBY_INPUTS):
            _raise_to_distances(off, *_outputs_of_inputs_nearer_zero(prepared, expected, seed))
    for spread in (False, True):
        with contextlib.suppress(
            ProblemError, torch.cuda.OutOfMemoryError
        ):  # a view may want its own layout
            inputs = with_other_strides(expected.inputs, spread=spread)
            _raise_to_distances(
                off, expected.exact, run_on(prepared, expected, expected.weights, inputs)
            )
    parts = zip(expected.exact, expected.eager, off, strict=True)
    return [e if gap is None else _add_distance(r, gap) for r, e, gap in parts]


def _outputs_of_inputs_nearer_zero(
    prepared: PreparedProblem, expected: ExpectedOutputs, seed: int
) -> tuple[list[Any], list[Any]]:
    """Returns float64's outputs and eager's, both on equal reduced inputs."""
    nearby = scale_towards_zero(expected.inputs, seed)
    exact = run_on(
        prepared, expected, model_in_float64(expected.weights), inputs_in_float64(nearby)
    )
    return exact, run_on(prepared, expected, expected.weights, nearby)


def _distance_of_floats(a: Any, b: torch.Tensor) -> Any:
    """Returns |a - b|, 0 if not finite; None for integers and values that are no tensors."""
    import torch

    if not isinstance(a, torch.Tensor) or not (a.is_floating_point() or a.is_complex()):
        return None
    return distance(a, b)


def _raise_to_distances(gaps: list[Any], exact: list[Any], other: list[Any]) -> None:
    """Raises each gap, if any, to at least the distance of the other two."""
    for gap, r, o in zip(gaps, exact, other, strict=True):
        if gap is not None:
            raise_to_distance(gap, r, o)


def _add_distance(exact: torch.Tensor, gap: torch.Tensor) -> Any:
    """Returns the sum of the exact output and the gap, which is consumed."""
    return gap.add_(exact) if gap.dtype == exact.dtype else exact + gap

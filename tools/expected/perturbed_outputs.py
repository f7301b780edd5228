"""What the reference makes of inputs beside a draw's: how far off an honest candidate may be where a problem is
ill-conditioned. In pieces, and with no more tensors at a time than it takes: each may take gigabytes.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

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

PERTURBATION_ULPS, ROW_PERTURBATIONS = 16, 3
"""How far inputs are moved to see what the reference makes of it, and how often as whole rows."""
HALF_PERTURBATION_ULPS = 2
"""The same for inputs of sixteen bits, whose last place is as large as the noise of arithmetic on them."""
NOISY_RUNS = 2
"""How often each kind of noise is drawn for an output that steps, each time with its mirror image."""
NEARBY_INPUTS = 4
"""Inputs nearby on which eager's own error is looked at where that of a draw may be small by luck."""


def may_move(
    expected: ExpectedOutputs, number: int, kind: ArithmeticKind, *, at_size: bool
) -> bool:
    """Whether output `number` may be off by what the reference moves by. Not where no operator rounds; and where none
    steps, not on the problem's own inputs at its own size: eager's error tells there.
    """
    if kind is not ArithmeticKind.ROUNDED or expected.exact is None:
        return kind is not ArithmeticKind.EXACT
    return at_size or expected.draw != "own"


def steps_of_outputs(
    prepared: PreparedProblem, expected: ExpectedOutputs
) -> list[StepReach | None]:
    """Runs the reference on inputs moved by noise, several times, and returns how far each output moved from float64's;
    None for what is no tensor.

    Every noise comes with its mirror image: an element that lies on a step, as half an integer that is rounded does, is
    on the other side of it in one of the two.
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


def _zero_reach(output: Any) -> Any:
    """Zeros for each real part of an output; None for what is no tensor."""
    import torch

    if not isinstance(output, torch.Tensor):
        return None
    return torch.zeros(real_parts(output).shape, dtype=torch.float32, device=output.device)


def _raise_reaches(reaches: list[Any], moved: list[Any], exact: list[Any]) -> None:
    for reach, other, r in zip(reaches, moved, exact, strict=True):
        if reach is not None and other.shape == r.shape:
            raise_reach(reach, real_parts(other), real_parts(r))


def outputs_of_perturbed_inputs(prepared: PreparedProblem, expected: ExpectedOutputs) -> list[Any]:
    """The expected outputs, off by what an honest candidate may at least be off by; `measure` takes them as
    `perturbed`.

    The reference on inputs moved by a few ulps shows where the problem is ill-conditioned in its inputs: each element
    its own way, and each row as one, as rounding moves a sum of equal terms. One such move may leave a row by luck
    where it was, hence several. None shows what is lost on the way: of 1 + tanh(x) near -1 little is left, and where a
    row is one number eager may be right in all of it by luck. So floating outputs are off by no less than other
    roundings of intermediate results make of them (exactness/random_rounding.py). Nor by less than what follows from
    which of equal values `topk` names.
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
    """The expected outputs, off by what eager is off by on the same inputs laid out otherwise in memory, and on inputs
    nearby: where some are infinite or millions, an output may be all that is left of a sum of those, and eager right in
    it by luck. Of two millions that torch adds to each other first nothing is lost, in an order that its layout alone
    decides. Moved by a few ulps such inputs say too much: of two equal millions softmax would choose one.
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
    """Float64's outputs and eager's, both on the same lessened inputs."""
    nearby = scale_towards_zero(expected.inputs, seed)
    exact = run_on(
        prepared, expected, model_in_float64(expected.weights), inputs_in_float64(nearby)
    )
    return exact, run_on(prepared, expected, expected.weights, nearby)


def _distance_of_floats(a: Any, b: Any) -> Any:
    """|a - b|, 0 where it is not finite; None for whole numbers and for what is no tensor."""
    import torch

    if not isinstance(a, torch.Tensor) or not (a.is_floating_point() or a.is_complex()):
        return None
    return distance(a, b)


def _raise_to_distances(gaps: list[Any], exact: list[Any], other: list[Any]) -> None:
    """Each gap, where there is one, to no less than what lies between the other two."""
    for gap, r, o in zip(gaps, exact, other, strict=True):
        if gap is not None:
            raise_to_distance(gap, r, o)


def _add_distance(exact: Any, gap: Any) -> Any:
    """The exact output and the gap, which is no longer needed, added."""
    return gap.add_(exact) if gap.dtype == exact.dtype else exact + gap

"""Honest arithmetic is right where nothing is left of an answer but roundings, and what shows is wrong there."""

from __future__ import annotations

from functools import cache, partial

import pytest
import torch

from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.expected.by_draw import measure_by_draw
from kernelwright.tools.expected.exactness.exact_values import kind_of_output
from kernelwright.tools.expected.exactness.open_elements import fill_open_elements
from kernelwright.tools.expected.perturbed_outputs import may_move, outputs_of_perturbed_inputs
from kernelwright.tools.expected.prepared_problem import (
    ExpectedOutputs,
    PreparedProblem,
    expected_outputs,
    prepare_problem,
)
from kernelwright.tools.references.input_distributions import Draw
from tests.tools.comparing.exactness.degenerate_cases import DEVELOPED, REPORTED, Case

SIZES = ((24, 1), (1, 1), (2, 2), (2047, 1))
CASES = (*DEVELOPED, *REPORTED)


def is_accepted(prepared: PreparedProblem, expected: ExpectedOutputs, answer: torch.Tensor) -> bool:
    moved = cache(partial(outputs_of_perturbed_inputs, prepared, expected))
    kind = kind_of_output(prepared, expected, 0, answer)
    assert kind is not ArithmeticKind.STEPPED
    moves = moved if may_move(expected, 0, kind, at_size=True) else None
    compared = partial(
        measure_by_draw, expected=expected, number=0, name="sizes", moved=moves, kind=kind
    )
    if compared(answer).check.passed:
        return True
    filled = fill_open_elements(prepared, expected, 0, answer)
    return filled is not None and compared(filled).check.passed


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case_and_base(request):
    return request.param, prepare_problem(request.param.problem(7, 65), "cpu", 1)


def draws(case: Case, base: PreparedProblem):
    for rows, columns in SIZES:
        prepared = prepare_problem(case.problem(rows, columns), "cpu", 1, like=base)
        for draw in (Draw.OWN, Draw.SIGNED, Draw.LARGE):
            for seed in (3, 4):
                yield (
                    f"{draw} {seed} at {rows}, {columns}",
                    prepared,
                    expected_outputs(prepared, draw, seed),
                )


def test_other_honest_arithmetic_is_accepted_at_extents_of_one_and_two(case_and_base):
    case, base = case_and_base
    refused = [
        name for name, prepared, expected in draws(case, base)
        if not is_accepted(prepared, expected, case.honest(*expected.inputs).reshape(expected.eager[0].shape))
    ]  # fmt: skip
    assert not refused


@pytest.mark.slow
def test_each_answer_that_is_wrong_by_what_shows_is_refused_on_most_draws(case_and_base):
    case, base = case_and_base
    for number, wrong in enumerate(case.wrong):
        accepted = [
            name for name, prepared, expected in draws(case, base)
            if is_accepted(prepared, expected, wrong(*expected.inputs).reshape(expected.eager[0].shape))
        ]  # fmt: skip
        assert len(accepted) < 4 * len(SIZES), (number, accepted)

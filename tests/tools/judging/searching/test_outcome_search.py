"""The search for missing outcomes, over functions that stand for a kernel's operand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from kernelwright.tools.comparison_coverage import OutcomeCoverage
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs
from kernelwright.tools.expected.searched_draws import Change
from kernelwright.tools.judging.searching.outcome_search import (
    MAX_SEARCH_DRAWS,
    OutcomeSearch,
    numbers_with_bits,
)
from kernelwright.tools.replaying.interpreter.comparisons.messages import (
    ToldComparison,
    ToldOutcomes,
    ToldResult,
)

Operand = Callable[[torch.Tensor], torch.Tensor]


class Kernel:
    """One comparison `operand(x) > bound` on rows of 64 numbers, whose outcomes are followed as an interpreter does."""

    def __init__(self, operand: Operand, bound: float, largest: float = 1e38) -> None:
        self.operand, self.bound, self.largest = operand, bound, largest
        self.true = self.false = False
        self.nearest: tuple[float, float] | None = None
        self.calls = 0
        self.run(torch.randn(12, 64, generator=torch.Generator().manual_seed(1)))
        self.calls = 0

    def run(self, x: torch.Tensor) -> None:
        values = self.operand(x).reshape(-1)
        values = values[values.isfinite()]
        self.calls += 1
        self.true |= bool((values > self.bound).any())
        self.false |= bool((values <= self.bound).any())
        lane = int((values - self.bound).abs().argmin())
        self.nearest = (float(values[lane]), self.bound)

    def expect(self, change: Change) -> ExpectedOutputs | None:
        x = torch.randn(12, 64, generator=torch.Generator().manual_seed(2))
        change.floating(x)
        return (
            None
            if float(x.abs().max()) > self.largest
            else ExpectedOutputs([x], [x], None, 0, None)
        )

    def check(self, expected: ExpectedOutputs, number: int) -> None:
        self.run(expected.inputs[0])

    def tell(self) -> ToldOutcomes:
        told = ToldComparison(
            number=0, line=1, text="", operator=">", dtype="fp32", constant=self.bound,
            true=self.true, false=self.false, evaluations=1, nearest=self.nearest,
        )  # fmt: skip
        self.nearest = None
        return ToldOutcomes([told], [])

    def searched(self) -> OutcomeSearch:
        search = OutcomeSearch(self.expect, self.check, self.tell)
        search.run()
        return search


@pytest.mark.parametrize(
    ("operand", "bound"),
    [
        (lambda x: x, 1e7),
        (lambda x: -x, 3e20),
        (lambda x: x.abs().log(), 9.02),
        (lambda x: x * x, 1e25),
        (lambda x: x.sum(-1), 1e12),
        (lambda x: x.square().sum(-1).sqrt(), 1e17),
        (lambda x: 1 / x.abs().amax(-1), 1e15),
        (lambda x: x.abs().amin(-1) * 1e-6, 1e3),
        (lambda x: x.sum() / 1e4, 1e5),
    ],
)
def test_a_threshold_is_found_whatever_leads_to_it(operand: Operand, bound: float) -> None:
    kernel = Kernel(operand, bound)
    search = kernel.searched()
    assert kernel.true
    assert kernel.calls <= MAX_SEARCH_DRAWS
    (only,) = search.coverage(kernel.tell()).comparisons
    assert only.outcomes is OutcomeCoverage.BOTH


def test_a_guard_that_no_number_turns_is_bounded_and_costs_no_reward() -> None:
    kernel = Kernel(lambda x: torch.softmax(x, -1).sum(-1), 1.5)
    coverage = kernel.searched().coverage(kernel.tell())
    assert coverage.comparisons[0].outcomes is OutcomeCoverage.BOUNDED
    assert coverage.reward_ineligible_because == ""


def test_an_operand_that_comes_nearer_and_does_not_reach_is_uncovered() -> None:
    kernel = Kernel(lambda x: x.abs().clamp(max=1e3).mean(), 1e4)
    coverage = kernel.searched().coverage(kernel.tell())
    assert coverage.comparisons[0].outcomes is OutcomeCoverage.UNCOVERED
    assert "never true" in coverage.reward_ineligible_because


def test_numbers_that_the_reference_cannot_be_given_are_left_out() -> None:
    kernel = Kernel(lambda x: x, 1e7, largest=1e5)
    search = kernel.searched()
    assert not kernel.true
    assert all(
        not draw.used or "1e+07" not in draw.change
        for draw in search.coverage(kernel.tell()).searched
    )


def test_nothing_is_searched_for_without_comparisons() -> None:
    kernel = Kernel(lambda x: x, math.inf)
    nothing = ToldOutcomes([], [])
    search = OutcomeSearch(kernel.expect, kernel.check, lambda: nothing)
    search.run()
    assert (kernel.calls, search.coverage(nothing).searched) == (0, ())


@pytest.mark.parametrize(
    ("constant", "number"),
    [
        (0x3DCCCCCD, torch.tensor(0.1).item()),
        (0x155A3B, 1 + 0x155A3B / 2**23),
        (131, 16.0),
        (0x2E66, 0.0999755859375),
    ],
)
def test_numbers_are_made_of_the_bits_that_a_kernel_compares_without_a_comparison(
    constant: int, number: float
) -> None:
    assert number in list(numbers_with_bits(constant))


def test_a_result_that_never_varied_costs_the_reward_and_is_told_with_its_line() -> None:
    kernel = Kernel(lambda x: x, 1.0)
    search = kernel.searched()
    result = ToldResult(line=7, text="flag = (d | -d) >> 31", operation="ashr", value=-1.0)
    coverage = search.coverage(ToldOutcomes([], [result]))
    assert coverage.reward_ineligible_because == (
        "a result was -1 on every draw: `ashr` at line 7: flag = (d | -d) >> 31"
    )

"""Weights under names that tell nothing: their values do, and other values are loaded where those lie."""

from __future__ import annotations

from bench.judge_suites import EXPLOITS, HONEST, problem_of
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.report import Cheat, Fault, Report

BRIEFLY = Options(profile=False, torch_compile=False, sizes=1)
ONE_DRAW = (EXPLOITS / "buffers_folded_from_one_draw.py").read_text()
JOINED = (HONEST / "joined_weights_transposed_as_an_attribute.py").read_text()


def judged(evaluator: Evaluator, source: str, problem: str) -> Report:
    return evaluator.evaluate(problem_of(f"problems/{problem}.py"), source, BRIEFLY)


def test_parts_of_one_draw_are_two_weights_and_follow_what_is_loaded(evaluator):
    whole = ONE_DRAW.replace("self.c = both[0] @ both[1]", "self.both = both")
    whole = whole.replace(
        "linear(x, self.c, None, True)",
        "linear(linear(x, both[0], None, True), both[1], None, True)",
    )
    whole = whole.replace(
        "def forward(self, x):", "def forward(self, x):\n        both = self.both"
    )
    report = judged(evaluator, whole, "two_products_with_drawn_buffers")
    assert report.correct, report.failure
    assert report.interpreted.weights_reloaded is True
    assert {"own", "other_weights"} <= {check.draw for check in report.interpreted.checks}


def test_a_product_of_both_parts_is_work_that_later_weights_do_not_see(evaluator):
    report = judged(evaluator, ONE_DRAW, "two_products_with_drawn_buffers")
    assert report.failure.fault is Fault.CHEAT
    assert report.failure.cheat is Cheat.WEIGHTS


def test_weights_that_are_drawn_from_another_generator_are_not_checked(evaluator):
    other = JOINED.replace("super().__init__()", "super().__init__()\n        torch.randn(3)", 1)
    report = judged(evaluator, other, "three_linear_layers_joined")
    assert report.failure.fault is Fault.UNCHECKED
    assert "q.weight, q.bias, k.weight" in report.failure.message

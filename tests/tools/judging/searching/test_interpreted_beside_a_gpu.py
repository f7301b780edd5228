"""What a verdict on a GPU adds to a right answer there: the candidate runs under the interpreter, too, which sees
outcomes of comparisons and other orders of programs. The GPU's part is left out here.
"""

from __future__ import annotations

import pytest

from bench.judge_suites import exploits, honest, problem_of
from kernelwright.tools.evaluation.interpreted_rung import InterpretedRung, select_sizes_beside_gpu
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.evaluation.report_parts import with_interpreted
from kernelwright.tools.host_choices import MOVES_ON, HostChoice
from kernelwright.tools.judging.own_work import Rule
from kernelwright.tools.judging.rules import SOME_STRIDES, JudgeFindings, Rules
from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.admission import admit
from kernelwright.tools.report import CorrectnessResult, Fault, Report

SEED = 20261128
GOT_THROUGH_ON_A_GPU = (
    "division_by_seven_of_less_than_a_million", "hands_on_by_a_relaxed_ticket",
    "last_running_sum_by_a_projection", "silu_is_zero_between_two_logarithms",
    "sum_of_rows_without_large_squares", "sum_of_vectors_whose_product_is_large",
)  # fmt: skip
"""Exploits that a GPU's own draws accepted on 2026-11-28: turned by a comparison of data, or by an order."""
INLINE_ASSEMBLY = """
import torch, torch.nn as nn, triton, triton.language as tl
@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = tl.inline_asm_elementwise("max.f32 $0, $1, 0f00000000;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out_ptr + at, y, mask=at < n)
class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
RELU = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn({extents})]
def get_init_inputs():
    return []
"""


NEVER_TAKEN = HostChoice(line=3, text="x.numel() > 100", never="false")


def after_a_right_answer(
    evaluator: Evaluator,
    problem: Problem,
    source: str,
    own_work: str = "strict",
    host_choices: tuple[HostChoice, ...] = (),
) -> Report:
    """The report that a GPU found right, with the interpreter's findings added."""
    problem = admit(problem, train_mode=False).problem
    right = Report(
        problem=problem.name,
        problem_hash=problem.hash,
        candidate_hash="c",
        correct=True,
        judged_on="a GPU",
        correctness=CorrectnessResult(device="a GPU", interpreted=False, host_choices=host_choices),
    )
    rung = InterpretedRung(
        evaluator._shared_resources(),
        problem,
        source,
        Options(),
        Rules(own_work=Rule.parse(own_work), contiguous_inputs=Options().contiguous_inputs),
        lambda doing: None,
    )
    selection = select_sizes_beside_gpu(problem, source, Options(), SEED)
    judged = rung.judged_beside_gpu(selection, SEED)
    return with_interpreted(right, judged, is_too_large=bool(selection.too_large))


@pytest.mark.parametrize("entry", exploits(GOT_THROUGH_ON_A_GPU), ids=lambda entry: entry.name)
def test_what_a_gpus_draws_do_not_show_is_refused(evaluator, entry):
    report = after_a_right_answer(
        evaluator, problem_of(entry.problem), entry.source, entry.own_work
    )
    assert not report.correct
    assert report.failure.message.startswith("right on the GPU's draws; under the interpreter ")
    assert not report.reward_eligible


@pytest.mark.parametrize(
    "entry", honest(["fused_softmax", "matmul", "layer_norm"]), ids=lambda entry: entry.name
)
def test_an_honest_kernel_stays_right_and_has_its_comparisons_told(evaluator, entry):
    report = after_a_right_answer(evaluator, problem_of(entry.problem), entry.source)
    assert report.correct, report.failure
    assert report.coverage is not None
    assert report.interpreted.passed
    assert report.judged_on == "a GPU"
    assert report.reward_eligible, report.reward_ineligible_because


def test_a_kernel_that_no_interpreter_can_run_stays_right_and_earns_no_full_reward(evaluator):
    report = after_a_right_answer(
        evaluator, Problem(name="relu", source=RELU.format(extents="64, 512")), INLINE_ASSEMBLY
    )
    assert report.correct, report.failure
    assert "seen by no interpreter" in report.reward_ineligible_because
    assert any(warning.startswith("not interpreted: ") for warning in report.warnings)


def test_a_problem_that_no_interpreter_can_run_costs_no_reward(evaluator):
    extents = ", ".join(["2"] * 22)  # no size of it is written where it could be made smaller
    report = after_a_right_answer(
        evaluator, Problem(name="relu", source=RELU.format(extents=extents)), INLINE_ASSEMBLY
    )
    assert report.correct
    assert report.interpreted is None
    assert report.reward_eligible, report.reward_ineligible_because


def test_a_failure_under_the_interpreter_is_told_at_its_rung(evaluator):
    [entry] = exploits(["sum_of_vectors_whose_product_is_large"])
    report = after_a_right_answer(evaluator, problem_of(entry.problem), entry.source)
    assert report.ended_at == "interpreted"
    assert report.failure.fault in (Fault.MISMATCH, Fault.PRECISION)


def test_layouts_and_surroundings_are_those_of_the_interpreter(evaluator):
    problem = Problem(name="relu", source=RELU.format(extents="64, 512"))
    source = INLINE_ASSEMBLY.replace(
        'tl.inline_asm_elementwise("max.f32 $0, $1, 0f00000000;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)',
        "tl.maximum(x, 0.0)",
    )
    report = after_a_right_answer(evaluator, problem, source, host_choices=(NEVER_TAKEN, MOVES_ON))
    assert report.correct, report.failure
    assert report.correctness.layouts
    assert report.ignores_strides.startswith("wrong where ")
    # The interpreter's traces did not miss the choice; memory that moves on was seen on the GPU.
    assert report.correctness.host_choices == (MOVES_ON,)


def test_what_costs_the_full_reward_under_the_interpreter_costs_it_on_a_gpu():
    right = Report(
        problem="relu",
        problem_hash="p",
        candidate_hash="c",
        correct=True,
        correctness=CorrectnessResult(device="a GPU", interpreted=False),
    )
    result = CorrectnessResult(device="cpu", interpreted=True, unanswered=SOME_STRIDES)
    report = with_interpreted(right, JudgeFindings(result), is_too_large=False)
    assert report.correct
    assert report.reward_ineligible_because == SOME_STRIDES

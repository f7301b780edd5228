"""A module whose random numbers end in eval mode is judged in eval mode, the candidate too, and everything says so."""

from __future__ import annotations

import pytest

from kernelwright.agent.contracts.guarded import guarded_kernel
from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.reference_trials.eval_mode import as_judged, in_eval_mode
from kernelwright.tools.reference_trials.trials import ReferenceTrials

FORM = """
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 12
COLUMNS = 32


{model}


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
MODEL = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}
"""
ENDS_IN_EVAL_MODE = {
    "a dropout layer": ("self.drop = nn.Dropout(0.4)", "return self.drop(torch.tanh(x))", "Dropout draws"),
    "functional dropout": ("pass", "return F.dropout(torch.tanh(x), 0.4, training=self.training)", "forward draws"),
    "a random slope": ("self.act = nn.RReLU()", "return self.act(x)", "RReLU draws"),
    "noise": ("pass", "return torch.tanh(x + torch.randn_like(x) if self.training else x)", "forward draws"),
    "Python's generator": ("pass", "return x if self.training and random.random() < 0.9 else torch.tanh(x)", "forward"),
    "attention": (
        "self.mix = nn.MultiheadAttention(COLUMNS, 2, dropout=0.5)", "return self.mix(x, x, x, need_weights=False)[0]",
        "MultiheadAttention draws",
    ),
}  # fmt: skip
STAYS = {
    "dropout that is always on": ("pass", "return F.dropout(torch.tanh(x), 0.4, training=True)"),
    "random numbers in forward": ("pass", "return torch.tanh(x) + torch.rand_like(x)"),
    "a batch norm": ("self.norm = nn.BatchNorm1d(COLUMNS)", "return self.norm(x)"),
    "dropout of nothing": ("self.drop = nn.Dropout(0.0)", "return self.drop(torch.tanh(x))"),
    "attention without dropout": ("pass", "return F.scaled_dot_product_attention(x, x, x)"),
    "no random numbers": ("pass", "return torch.tanh(x)"),
}
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    tl.store(out_ptr + at, 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0, mask=at < count)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.4)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        tanh_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return self.drop(out)
"""
"""A candidate that has a dropout layer of its own: it is right in eval mode only."""


def problem_of(init: str, forward: str) -> Problem:
    return Problem(
        name="mine.py", source=FORM.format(model=MODEL.format(init=init, forward=forward))
    )


@pytest.mark.parametrize("name", ENDS_IN_EVAL_MODE)
def test_random_numbers_that_end_in_eval_mode_put_the_module_there_and_are_named(name):
    init, forward, expected = ENDS_IN_EVAL_MODE[name]
    judged = as_judged(problem_of(init, forward))
    assert judged.reason.startswith(f"the module's {expected}")
    assert judged.reason.endswith("random numbers in training mode")
    assert judged.problem.source.count("self.eval()") == 1


@pytest.mark.parametrize("name", STAYS)
def test_every_other_module_stays_as_it_is_built(name):
    problem = problem_of(*STAYS[name])
    assert as_judged(problem) == (problem, "")


@pytest.mark.parametrize(
    "model",
    [
        "class Model(nn.Module):\n    def __init__(self): super().__init__(); self.drop = nn.Dropout(0.4)\n"
        "    def forward(self, x): return self.drop(x)",
        "class Base(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.drop = nn.Dropout(0.4)\n\n    def forward(self, x):\n        return self.drop(x)\n\n\n"
        "class Model(Base): pass",
        "class Model(nn.Module):\n\tdef __init__(this):\n\t\tsuper().__init__()\n"
        "\t\tthis.drop = nn.Dropout(0.4)\n\t\treturn\n\n"
        "\tdef forward(this, x):\n\t\treturn this.drop(x)",
    ],
    ids=["one line each", "an inherited constructor", "tabs, another name and a return"],
)
def test_the_call_of_eval_fits_every_form_of_a_constructor(model):
    problem = Problem(name="mine.py", source=FORM.format(model=model))
    quiet = in_eval_mode(problem)
    assert quiet is not None
    namespace: dict[str, object] = {}
    exec(quiet.source, namespace)
    assert not namespace["Model"]().training
    assert as_judged(problem).problem == quiet


def test_a_module_with_dropout_is_judged_in_eval_mode_and_its_candidate_too(evaluator):
    init, forward, _ = ENDS_IN_EVAL_MODE["a dropout layer"]
    problem = problem_of(init, forward)
    report = evaluator.evaluate(problem, KERNEL, Options(profile=False, torch_compile=False))
    assert report.correct, report.explanation
    assert report.eval_mode == "the module's Dropout draws random numbers in training mode"
    assert report.problem_hash == problem.hash


def test_the_contract_of_a_kernel_that_was_judged_in_eval_mode_is_eval_mode(evaluator):
    init, forward, _ = ENDS_IN_EVAL_MODE["a dropout layer"]
    problem = problem_of(init, forward)
    options = Options(profile=False, torch_compile=False, targets=())
    report = evaluator.evaluate(problem, KERNEL, options)
    kernel = guarded_kernel(
        problem, KERNEL, report, lambda text: evaluator.evaluate(problem, text, options)
    )
    assert any("eval only" in line for line in kernel.lines), kernel.lines
    assert kernel.report is not None
    assert kernel.report.correct, kernel.report.explanation


def test_in_train_mode_the_module_is_judged_as_it_is_built_and_refused(evaluator):
    init, forward, _ = ENDS_IN_EVAL_MODE["a dropout layer"]
    plain = KERNEL.replace("return self.drop(out)", "return out")
    with pytest.raises(ProblemError, match="the reference is random"):
        evaluator.evaluate(
            problem_of(init, forward),
            plain,
            Options(profile=False, torch_compile=False, train_mode=True),
        )


def test_a_module_that_stays_random_is_refused_with_its_line_before_any_turn():
    init, forward = STAYS["random numbers in forward"]
    with ReferenceTrials() as trials:
        with pytest.raises(
            ProblemError, match="the reference is random at line 17: output 0 follows"
        ):
            trials.require_working(problem_of(init, forward))
        trials.require_working(problem_of(init, forward), may_be_random=True)
        dropout = problem_of(*ENDS_IN_EVAL_MODE["a dropout layer"][:2])
        trials.require_working(dropout)
        with pytest.raises(ProblemError, match="the reference is random at line 17"):
            trials.require_working(dropout, train_mode=True)

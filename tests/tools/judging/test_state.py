"""References that keep something from call to call: a candidate is judged on the state that each call begins with."""

from __future__ import annotations

import pytest

from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.magnitudes import perturb_weights, running_statistics
from kernelwright.tools.report import Fault

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("average", torch.zeros(width))

    def forward(self, x):
        self.average.mul_(0.75).add_(x.sum(0), alpha=0.25)
        return x - self.average


def get_inputs():
    return [torch.randn(8, 32)]


def get_init_inputs():
    return [32]
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def step(x, average, out, rows, width, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = column < width
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(rows):
        total += tl.load(x + row * width + column, there, other=0.0)
    new = tl.load(average + column, there, other=0.0) * 0.75 + total * 0.25
    tl.store(average + column, new, there)
    for row in range(rows):
        tl.store(out + row * width + column, tl.load(x + row * width + column, there, other=0.0) - new, there)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("average", torch.zeros(width))

    def forward(self, x):
        out = torch.empty_like(x)
        rows, width = x.shape
        step[(triton.cdiv(width, 32),)](x, self.average, out, rows, width, BLOCK=32)
        return out
"""


@pytest.mark.slow
def test_a_running_average_is_right_in_every_call(evaluator):
    options = Options(profile=False, torch_compile=False)
    problem = Problem(name="running average", source=REFERENCE)
    report = evaluator.evaluate(problem, KERNEL, options)
    assert report.correct, report.explanation
    again = evaluator.evaluate(problem, KERNEL, options)
    assert again.correct, again.explanation


def test_a_running_average_with_another_weight_is_wrong(evaluator):
    wrong = KERNEL.replace("total * 0.25", "total * 0.26")
    report = evaluator.evaluate(
        Problem(name="running average", source=REFERENCE), wrong, Options(profile=False)
    )
    assert report.failure.fault is Fault.MISMATCH, report.explanation


STATISTICS = REFERENCE.replace(
    'self.register_buffer("average", torch.zeros(width))',
    'self.register_buffer("average", torch.zeros(width))\n'
    '        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))',
).replace(
    "self.average.mul_(0.75).add_(x.sum(0), alpha=0.25)\n        return x - self.average",
    "self.seen.add_(1)\n"
    "        self.average.mul_(0.75).add_(x.sum(0), alpha=0.25)\n        return x - x.sum(0, keepdim=True)",
)
"""As batch norm in training mode: what is kept for later decides nothing in this call."""
STATISTICS_KERNEL = (
    KERNEL.replace("other=0.0) - new, there)", "other=0.0) - total, there)")
    .replace(
        'self.register_buffer("average", torch.zeros(width))',
        'self.register_buffer("average", torch.zeros(width))\n'
        '        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))',
    )
    .replace(
        "        out = torch.empty_like(x)",
        "        self.seen.add_(1)\n        out = torch.empty_like(x)",
    )
)


def judged(evaluator, source, problem=STATISTICS):
    return evaluator.evaluate(
        Problem(name="statistics", source=problem), source, Options(profile=False)
    )


def test_statistics_that_are_updated_as_the_reference_updates_them_are_right(evaluator):
    report = judged(evaluator, STATISTICS_KERNEL)
    assert report.correct, report.explanation


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("    tl.store(average + column, new, there)\n", "", Fault.MISMATCH),
        ("        self.seen.add_(1)\n", "", Fault.MISMATCH),
        ("total * 0.25", "total * 0.24", Fault.MISMATCH),
    ],
    ids=["no update", "no count", "another weight"],
)
def test_an_answer_without_the_update_of_a_buffer_is_wrong_and_names_the_buffer(
    evaluator, old, new, fault
):
    assert old in STATISTICS_KERNEL
    report = judged(evaluator, STATISTICS_KERNEL.replace(old, new))
    assert report.failure.fault is fault, report.explanation
    assert (
        "the buffer seen" in report.failure.message
        or "the buffer average" in report.failure.message
    )
    assert report.correctness is None or report.correctness.correct_kb is not False


def test_a_candidate_without_the_buffer_is_told_to_keep_one(evaluator):
    lacking = STATISTICS_KERNEL.replace(
        'self.register_buffer("seen", torch.zeros((), dtype=torch.int64))', "pass"
    )
    report = judged(evaluator, lacking.replace("        self.seen.add_(1)\n", ""))
    assert report.failure.fault is Fault.MUTATION
    assert "updates its buffer seen" in report.failure.message


def test_buffers_under_other_names_are_known_by_their_order(evaluator):
    renamed = STATISTICS_KERNEL.replace('"average"', '"mean"').replace("self.average", "self.mean")
    report = judged(
        evaluator, renamed.replace('"seen"', '"count"').replace("self.seen", "self.count")
    )
    assert report.correct, report.explanation


def test_a_buffer_that_forward_replaces_by_a_new_tensor_is_read_all_the_same(evaluator):
    replacing = STATISTICS_KERNEL.replace(
        "        step[(", "        self.average = self.average.clone()\n        step[("
    )
    assert replacing != STATISTICS_KERNEL
    report = judged(evaluator, replacing)
    assert report.correct, report.explanation
    report = judged(evaluator, replacing.replace("total * 0.25", "total * 0.24"))
    assert report.failure.fault is Fault.MISMATCH, report.explanation


def test_a_buffer_that_the_reference_leaves_alone_may_not_be_changed(evaluator):
    constant = REFERENCE.replace(
        "self.average.mul_(0.75).add_(x.sum(0), alpha=0.25)\n        return x - self.average",
        "return x - x.sum(0, keepdim=True) - self.average",
    )
    kernel = KERNEL.replace("other=0.0) - new, there)", "other=0.0) - total, there)")
    report = judged(evaluator, kernel, constant)
    assert report.failure.fault is Fault.MUTATION, report.explanation
    assert "changes the buffer average" in report.failure.message


TIED = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.first = nn.Embedding(count, width)
        self.last = nn.Linear(width, count, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x):
        return x * self.first.weight + self.last.weight


def get_inputs():
    return [torch.randn(16, 8)]


def get_init_inputs():
    return [16, 8]
"""
TIED_KERNEL = TIED.replace("class Model", "class ModelNew").split("    def forward")[0].replace(
    "import torch.nn as nn", """import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled(x, one, other, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < count
    factor = tl.load(one + place, there)
    tl.store(out + place, tl.load(x + place, there) * factor + tl.load(other + place, there), there)
""",
) + """    def forward(self, x):
        out = torch.empty_like(x)
        count = x.numel()
        scaled[(triton.cdiv(count, 64),)](x, self.first.weight, self.last.weight, out, count, BLOCK=64)
        return out
"""  # fmt: skip


def test_tied_weights_are_reloaded_under_each_of_their_names(evaluator):
    report = judged(evaluator, TIED_KERNEL, TIED)
    assert report.correct, report.explanation
    apart = TIED_KERNEL.replace("        self.last.weight = self.first.weight\n", "")
    report = judged(evaluator, apart, TIED)
    assert report.correct, report.explanation


def test_running_statistics_are_moved_and_variances_stay_above_zero():
    import torch

    model = torch.nn.Sequential(torch.nn.BatchNorm1d(64), torch.nn.LayerNorm(64))
    model.register_buffer("table", torch.ones(3))
    perturb_weights(model, 5)
    assert set(running_statistics(model)) == {"0.running_mean", "0.running_var"}
    mean, variance = running_statistics(model).values()
    assert mean.abs().max() > 0.1
    assert variance.min() > 0
    assert int((variance > 0.1).sum()) > 40
    assert variance.std() > 0.1
    assert torch.equal(model.table, torch.ones(3))

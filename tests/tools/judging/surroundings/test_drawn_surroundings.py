"""A candidate is traced in drawn surroundings; where it asks for other things, its answer there is compared."""

from __future__ import annotations

import pytest

from bench.judge_suites import problem_of
from kernelwright.tools.options import Options

SUM = """
import datetime, os, random, threading, time
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def sum_kernel(x, out, columns, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + row * columns + at, mask=at < columns, other=0.0))
    tl.store(out + row, total * scale)

class ModelNew(nn.Module):
    def forward(self, x):
        BEFORE
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty(rows, dtype=x.dtype, device=x.device)
        sum_kernel[(rows,)](x, out, columns, SCALE, BLOCK=256)
        return out
"""
NORM = """
import copy
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def norm_kernel(x, weight, bias, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    v = tl.load(x + row * columns + at, mask=mask, other=0.0)
    centred = tl.where(mask, v - tl.sum(v) / columns, 0.0)
    v = centred / tl.sqrt(tl.sum(centred * centred) / columns + 1e-5)
    v = v * tl.load(weight + at, mask=mask) + tl.load(bias + at, mask=mask)
    tl.store(out + row * columns + at, v, mask=mask)

class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        nn.init.normal_(self.norm.weight, 1.0, 0.5)
        nn.init.normal_(self.norm.bias)
        BUILT

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        weight, bias = WEIGHTS
        norm_kernel[(x.shape[0],)](x, weight, bias, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
    METHODS
"""
OWN = "self.norm.weight, self.norm.bias"


def judged(evaluator, problem: str, source: str):
    return evaluator.evaluate(
        problem_of(problem), source, Options(profile=False, torch_compile=False)
    )


def sum_with(evaluator, scale: str = "1.0", before: str = "pass"):
    return judged(evaluator, "row_sum", SUM.replace("SCALE", scale).replace("BEFORE", before))


def norm_with(evaluator, built: str = "pass", weights: str = OWN, methods: str = ""):
    source = NORM.replace("BUILT", built).replace("WEIGHTS", weights).replace("METHODS", methods)
    return judged(evaluator, "layer_norm", source)


@pytest.mark.parametrize(
    "scale",
    [
        "0.5 if datetime.datetime.now().year > 2027 else 1.0",
        "1.0 / (1 + (time.time_ns() > 1_830_000_000 * 10**9))",
        "0.5 if 'WORLD_SIZE' in os.environ else 1.0",
        "torch.finfo(torch.tensor(0.0).dtype).eps * 2**23",
        "0.5 if torch.is_autocast_enabled('cuda') else 1.0",
        "1.0 if torch.get_num_threads() == 1 else 0.5",
        "0.5 if torch.are_deterministic_algorithms_enabled() else 1.0",
        "1.0 if self.training else 0.5",
        "0.5 if torch.is_grad_enabled() and x.is_leaf and x.requires_grad else 1.0",
    ],
)
def test_a_sum_that_depends_on_its_surroundings_is_refused(evaluator, scale):
    assert not sum_with(evaluator, scale).correct


@pytest.mark.parametrize(
    "before",
    [
        "assert not torch.is_autocast_enabled('cuda'), 'no autocast'",
        "started = time.perf_counter()",
        "x = x.detach()",
    ],
)
def test_a_sum_that_refuses_surroundings_or_does_not_mind_them_is_right(evaluator, before):
    report = sum_with(evaluator, before=before)
    assert report.reward_eligible, (report.failure, report.reward_ineligible_because)


@pytest.mark.parametrize(
    ("built", "weights", "methods"),
    [
        ("w, b = self.norm.weight, self.norm.bias\n        self.weights = lambda: (w, b)", "self.weights()", ""),
        ("pass", OWN, "def _load_from_state_dict(self, *_):\n        return None\n"
         "    def load_state_dict(self, state, **_):\n        return super().load_state_dict({}, strict=False)"),
    ],
    ids=["weights in a closure", "nothing is loaded"],
)  # fmt: skip
def test_a_module_that_does_not_follow_a_checkpoint_is_refused(evaluator, built, weights, methods):
    report = norm_with(evaluator, built, weights, methods)
    assert report.failure is not None
    told = report.failure.message
    assert "where a checkpoint is loaded" in told or "where the module is a deep copy" in told


@pytest.mark.parametrize("built", ["pass", "self.count = 2"])
def test_a_module_that_reads_its_own_parameters_follows_every_checkpoint(evaluator, built):
    report = norm_with(evaluator, built)
    assert report.reward_eligible, (report.failure, report.reward_ineligible_because)


@pytest.mark.parametrize(
    ("scale", "told"),
    [
        ("0.5 if type(x).__name__ == 'Tensor' else 1.0", "type(x).__name__ == 'Tensor'"),
        ("0.5 if threading.active_count() > 60 else 1.0", "threading.active_count() > 60"),
        ("{7: 0.5}.get(hash(str(rows * columns)) % 4099, 1.0)", "get(hash"),
    ],
)
def test_a_choice_that_no_trace_made_costs_the_reward(evaluator, scale, told):
    report = sum_with(evaluator, scale)
    assert report.correct, report.failure
    assert not report.reward_eligible
    assert told in report.reward_ineligible_because

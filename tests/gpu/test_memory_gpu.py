"""Problems that fill a GPU's memory, beside others: what is kept for speed alone makes room for them."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")

from kernelwright.tools.judging.options import Options  # noqa: E402
from kernelwright.tools.pipeline import Evaluator  # noqa: E402
from kernelwright.tools.problem import Problem  # noqa: E402
from kernelwright.tools.replaying.allocations import Allocations  # noqa: E402

pytestmark = pytest.mark.gpu
REFERENCE = """
import torch
import torch.nn as nn

rows = ROWS
columns = 65536


class Model(nn.Module):
    def forward(self, x):
        return x / torch.mean(torch.abs(x), dim=1, keepdim=True) + NUMBER


def get_inputs():
    return [torch.rand(rows, columns)]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
import triton
import triton.language as tl


@triton.jit
def normalised(x, out, columns, number, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((block,), dtype=tl.float32)
    for begin in range(0, columns, block):
        i = begin + tl.arange(0, block)
        total += tl.abs(tl.load(x + row * columns + i, mask=i < columns, other=0.0))
    mean = tl.sum(total) / columns
    for begin in range(0, columns, block):
        i = begin + tl.arange(0, block)
        value = tl.load(x + row * columns + i, mask=i < columns, other=0.0)
        tl.store(out + row * columns + i, value / mean + number, mask=i < columns)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        normalised[(x.shape[0],)](x, out, x.shape[1], NUMBER, block=1024)
        return out
"""


def problem(number: int, gigabytes: float) -> Problem:
    rows = str(int(gigabytes * (1 << 30)) // (4 * 65536))
    source = REFERENCE.replace("ROWS", rows).replace("NUMBER", str(float(number)))
    return Problem(name=f"of {gigabytes} GiB, {number}", source=source)


def candidate(number: int) -> str:
    return CANDIDATE.replace("NUMBER", str(float(number)))


def test_a_dropped_tensor_of_a_replay_gives_its_memory_back_at_once():
    gc.disable()
    try:
        allocations = Allocations(0xFF, device="cuda:0")
        before = torch.cuda.memory_allocated()
        for _ in range(8):
            tensor = allocations.fresh(torch.empty(1 << 28, device="meta"), None)
            del tensor
            allocations.let_go()
            assert torch.cuda.memory_allocated() - before < 1 << 20
        assert not allocations.written_outside()
    finally:
        gc.enable()


@pytest.mark.slow
def test_problems_that_take_a_tenth_of_the_memory_in_and_out_are_judged_in_a_batch():
    """As bench.compiler_drafts asks: several threads, one evaluator, each problem another tensor of gigabytes."""
    whole = torch.cuda.get_device_properties(0).total_memory / (1 << 30)
    sizes = [whole / 10, whole / 40, whole / 10, whole / 20, whole / 10]
    options = Options(torch_compile=False)
    with Evaluator("cuda:0", workers=1) as evaluator, ThreadPoolExecutor(len(sizes)) as pool:
        reports = list(
            pool.map(
                lambda at: evaluator.evaluate(problem(at[0], round(at[1], 1)), candidate(at[0]), options),
                enumerate(sizes),
            )
        )
    assert [r.correct for r in reports] == [True] * len(sizes), [r.failure and r.failure.message for r in reports]

"""Problems that fill a GPU's memory, beside others: what is kept for speed alone makes room for them."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")

from kernelwright.tools.comparing.on_the_host import moved_to_host  # noqa: E402
from kernelwright.tools.evaluation.pipeline import Evaluator  # noqa: E402
from kernelwright.tools.hardware.memory_requests import wait_for_memory  # noqa: E402
from kernelwright.tools.options import Options  # noqa: E402
from kernelwright.tools.problem import Problem  # noqa: E402
from kernelwright.tools.replaying.allocations import Allocations  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.alone_on_gpu]
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


def test_a_tensor_that_is_set_aside_leaves_its_memory_to_others_and_comes_back():
    tensor = torch.randn(1 << 28, device="cuda:0")
    view, before = tensor[5:], tensor.cpu()
    held, (free, _) = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()
    with moved_to_host([view]):
        assert held - torch.cuda.memory_allocated() >= tensor.numel() * 4
        assert torch.cuda.mem_get_info()[0] - free >= tensor.numel() * 4
    assert torch.equal(tensor.cpu(), before)
    assert torch.equal(view.cpu(), before[5:])


@pytest.mark.slow
def test_problems_that_take_a_tenth_of_the_memory_in_and_out_are_judged_in_a_batch():
    """As bench.compiler_drafts asks: several threads, one evaluator, each problem another tensor of gigabytes."""
    whole = torch.cuda.get_device_properties(0).total_memory / (1 << 30)
    sizes = [whole / 10, whole / 40, whole / 10, whole / 20, whole / 10]
    options = Options(torch_compile=False)
    with Evaluator("cuda:0", workers=1) as evaluator, ThreadPoolExecutor(len(sizes)) as pool:
        reports = list(
            pool.map(
                lambda at: evaluator.evaluate(
                    problem(at[0], round(at[1], 1)), candidate(at[0]), options
                ),
                enumerate(sizes),
            )
        )
    assert [r.correct for r in reports] == [True] * len(sizes), [
        r.failure and r.failure.message for r in reports
    ]


WIDENING = """
import torch
import torch.nn as nn

batch_size = BATCH
in_channels = 64
out_channels = 128


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.widen = nn.Conv2d(in_channels, out_channels, 1, bias=False)

    def forward(self, x):
        return self.widen(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, 1024, 1024)]


def get_init_inputs():
    return [in_channels, out_channels]
"""
WIDENED = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copied(x, y, count, block: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    tl.store(y + i, tl.load(x + i, mask=i < count), mask=i < count)


@triton.jit
def widened(
    x, weight, out, pixels, inside, outside, rows: tl.constexpr, columns: tl.constexpr, steps: tl.constexpr,
):
    image = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * rows + tl.arange(0, rows)
    column = tl.program_id(2).to(tl.int64) * columns + tl.arange(0, columns)
    total = tl.zeros((rows, columns), dtype=tl.float32)
    for first in range(0, inside, steps):
        step = first + tl.arange(0, steps)
        left = tl.load(
            weight + row[:, None] * inside + step[None, :], (row < outside)[:, None] & (step < inside)[None, :], 0.0
        )
        right = tl.load(
            x + (image * inside + step[:, None]) * pixels + column[None, :],
            (step < inside)[:, None] & (column < pixels)[None, :], 0.0,
        )
        total += tl.dot(left, right, input_precision="tf32")
    tl.store(
        out + (image * outside + row[:, None]) * pixels + column[None, :], total,
        (row < outside)[:, None] & (column < pixels)[None, :],
    )


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.widen = nn.Conv2d(in_channels, out_channels, 1, bias=False)

    def forward(self, x):
        weight = self.widen.weight
        batch, inside, height, width = x.shape
        outside, pixels = weight.shape[0], height * width
        y = torch.empty_like(x)
        copied[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), block=1024)
        out = torch.empty((batch, outside, height, width), device=x.device, dtype=x.dtype)
        grid = (batch, triton.cdiv(outside, 128), triton.cdiv(pixels, 128))
        widened[grid](y, weight, out, pixels, inside, outside, rows=128, columns=128, steps=32, num_warps=8)
        return out
"""


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.15])
def test_a_convolution_in_tf32_whose_inputs_and_outputs_take_a_seventh_of_the_memory_is_judged_and_timed(
    share,
):
    """Its answers are compared by how far the reference itself is off in tf32: several outputs more."""
    whole = torch.cuda.get_device_properties(0).total_memory
    batch = int(share * whole) // (4 * (64 + 128) << 20)
    large = Problem(
        name=f"convolution of {batch} images", source=WIDENING.replace("BATCH", str(batch))
    )
    with Evaluator("cuda:0", workers=1) as evaluator:
        report = evaluator.evaluate(large, WIDENED, Options(torch_compile=False))
    assert report.correct, report.failure
    assert report.profile is not None


def test_a_judge_that_is_not_at_work_gives_what_it_keeps_to_a_process_that_asks_and_goes_on_afterwards():
    with Evaluator("cuda:0", sharers=2) as evaluator:
        assert evaluator.evaluate(
            problem(1, 0.5), candidate(1), Options(torch_compile=False)
        ).correct
        judge = evaluator._gpu_judge
        kept = judge.memory.total() - judge.memory.free_for_all()
        assert wait_for_memory(evaluator._own_gpu().uuid, judge.memory.total(), 1)
        assert judge.memory.total() - judge.memory.free_for_all() < kept
        assert evaluator.evaluate(
            problem(1, 0.5), candidate(1), Options(torch_compile=False)
        ).correct

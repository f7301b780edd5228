"""A kernel may be given the addresses of many tensors in one tensor, as grouped products are."""

from __future__ import annotations

import pytest

from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Fault

PROBLEM = Problem(
    name="scaled_rows",
    source="""
import torch, torch.nn as nn
rows = 12
width = 70
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.randn(width)) for _ in range(3)])
    def forward(self, tensors):
        return [t * s for t, s in zip(tensors, self.scales)]
def get_inputs():
    return [[torch.randn(rows, width), torch.randn(2 * rows, width), torch.randn(rows + 1, width)]]
def get_init_inputs():
    return []
""",
)
KERNEL = """
import torch, torch.nn as nn, triton, triton.language as tl

width = 70

@triton.jit
def scale_kernel(addresses, sizes, columns, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    x = tl.load(addresses + 3 * group).to(tl.pointer_type(tl.float32))
    scale = tl.load(addresses + 3 * group + {which}).to(tl.pointer_type(tl.float32))
    out = tl.load(addresses + 3 * group + 2).to(tl.pointer_type(tl.float32))
    count = tl.load(sizes + group)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < count
        value = tl.load(x + at, mask=inside) * tl.load(scale + at % columns, mask=inside)
        tl.store(out + at, value, mask=inside)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.randn(width)) for _ in range(3)])
    def forward(self, tensors):
        out = [torch.empty_like(t) for t in tensors]
        addresses = [t.data_ptr() {shift} for group in zip(tensors, self.scales, out) for t in group]
        sizes = [t.numel() for t in tensors]
        device = tensors[0].device
        {table}
        sizes = torch.tensor(sizes, dtype=torch.int32, device=device)
        scale_kernel[(len(out),)](table, sizes, tensors[0].shape[1], BLOCK=128)
        return out
"""
TABLES = {
    "made on the device": "table = torch.tensor(addresses, dtype=torch.int64, device=device)",
    "made on the host": "table = torch.tensor(addresses).to(device)",
    "copied into a buffer": "table = torch.empty(9, dtype=torch.int64, device=device)\n"
    "        table.copy_(torch.tensor(addresses))",
    "put together": "table = torch.cat([torch.tensor(addresses[:3]), torch.tensor(addresses[3:])]).to(device)",
}


def judged(evaluator, table: str, which: int = 1, shift: str = ""):
    source = (
        KERNEL.replace("{which}", str(which)).replace("{shift}", shift).replace("{table}", table)
    )
    return evaluator.evaluate(PROBLEM, source, Options(profile=False, torch_compile=False, sizes=3))


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_kernel_reaches_tensors_by_their_addresses(evaluator, name):
    report = judged(evaluator, TABLES[name])
    assert report.correct, report.failure


def test_what_a_wrong_address_gives_is_wrong(evaluator):
    report = judged(evaluator, TABLES["made on the device"], which=0)
    assert report.failure.fault is Fault.MISMATCH


def test_an_address_beyond_its_tensor_is_no_address(evaluator):
    report = judged(evaluator, TABLES["made on the device"], shift="+ 4 * t.numel()")
    assert not report.correct


def test_an_address_inside_of_a_tensor_is_one(evaluator):
    report = judged(evaluator, TABLES["made on the device"], shift="+ 8 - 8")
    assert report.correct, report.failure

"""What people write round a launch for a GPU, judged without one: offline compiled and interpreted."""

from __future__ import annotations

import pytest

from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem
from tests.tools.references.test_many_tensors import RELU

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(6, 70)]


def get_init_inputs():
    return []
"""
LINES = [
    "assert x.is_cuda and not x.is_cpu", "assert x.device.type == 'cuda'", "assert x.device == torch.device('cuda:0')",
    "assert str(x.device).startswith('cuda')", "assert x.get_device() == 0 and x.device.index == 0",
    "if x.device.type == 'cpu': return torch.relu(x)",
    "if x.device != self.scale.device: raise ValueError('weights elsewhere')", "assert x.device == DEVICE",
    "assert torch.cuda.device_count() == 1",
    "y = torch.empty(x.shape, device=x.device, dtype=x.dtype); assert y.device == x.device",
    "z = torch.zeros(4).to(x.device); assert z.is_cuda", "z = torch.zeros(4, device='cuda:0') + x[0, :4]",
    "i = torch.arange(4, device=x.device)",
    "w = torch.tensor([1.0], device=x.device)", "n = x.new_zeros(3, device=x.device)",
    "t = torch.ones_like(x, device=x.device)",
    "l = nn.Linear(4, 4, device=x.device); assert l.weight.device.type == 'cuda'",
    "l = nn.Linear(4, 4).to(x.device)", "l = nn.Linear(4, 4).cuda()", "x = x.to(device=x.device, non_blocking=True)",
    "x = x.contiguous().cuda(non_blocking=True)", "x = x.to('cuda', torch.float32)", "x = x.type(torch.float32)",
    "torch.cuda.synchronize(x.device)", "torch.cuda.set_device(x.device)",
    "assert torch.cuda.get_device_properties(x.device).multi_processor_count > 0",
    "assert torch.cuda.get_device_capability(x.device)[0] >= 8",
    "name = torch.cuda.get_device_name(x.device)",
    "s = torch.cuda.current_stream(x.device); s.wait_stream(torch.cuda.Stream())",
    "e = torch.cuda.Event(enable_timing=True); e.record(); e.synchronize()",
    "torch.cuda.nvtx.range_push('relu'); torch.cuda.nvtx.range_pop()",
    "autocast = torch.autocast(device_type=x.device.type, enabled=False).__enter__()", "d = torch.device(x.device)",
    "assert self.scale.is_cuda and next(self.parameters()).device == x.device",
    "self.register_buffer('b', torch.zeros(2, device=x.device))", "with torch.device(x.device): b = torch.zeros(3)",
    "k = torch.as_tensor([1, 2], device=x.device)",
    "assert torch.zeros(2).device.type == 'cpu' or True", "x = x.detach().requires_grad_(False)",
    "c = torch.cat([x, torch.zeros(1, x.shape[1], device=x.device)])",
    "m = torch.empty((2, 3), device=x.device).fill_(0)",
    "s = torch.empty_strided((2, 3), (3, 1), device=x.device)",
    "r = torch.cuda.is_bf16_supported() and torch.version.cuda", "h = torch.full((2,), 1.0, device=DEVICE)",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_host_code_for_a_gpu_is_judged_without_one(evaluator, line):
    source = RELU.replace("class ModelNew(nn.Module):\n",
        "DEVICE = torch.device('cuda', 0)\n\n\nclass ModelNew(nn.Module):\n    def __init__(self):\n       "
        " super().__init__()\n        self.scale = " "nn.Parameter(torch.ones(1))\n\n")  # fmt: skip
    source = source.replace(
        "        out = torch.empty_like(x)\n",
        f"        {line}\n        out = torch.empty_like(x)\n",
    )
    options = Options(profile=False, torch_compile=False, own_work="report", sizes=1)
    report = evaluator.evaluate(Problem(name="relu", source=REFERENCE), source, options)
    assert report.correct, report.failure

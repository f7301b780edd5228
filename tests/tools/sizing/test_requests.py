"""What the tracer is asked for, where the reference reads the values of its inputs."""

from kernelwright.tools.judging.rules import AtSize
from kernelwright.tools.problem import Problem
from kernelwright.tools.sizing.selection import Selection, trace_requests

COUNTS = """
import torch
import torch.nn as nn

N = 16_777_216
CPU_SIZES = {"N": 999}


class Model(nn.Module):
    def forward(self, x):
        return torch.bincount(x, minlength=16)


def get_inputs():
    return [torch.randint(0, 16, (N,))]


def get_init_inputs():
    return []
"""


def test_a_gpu_judges_at_the_problem_s_own_size_and_it_is_traced_there():
    problem = Problem(name="counts", source=COUNTS)
    shapes = []
    for device in ("cuda:0", "cpu"):
        own = trace_requests(problem, Selection(base=AtSize(index=0, problem=problem)), device, 0)[0]
        shapes += [one["tensor"]["shape"] for one in own.spec.inputs]
    on_gpu, on_cpu = shapes
    assert on_gpu == [1 << 24]
    assert on_cpu[0] < 1 << 24

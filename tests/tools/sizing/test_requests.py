"""What the tracer is asked for, where the reference reads the values of its inputs."""

import pytest

from kernelwright.tools.judging.rules import AtSize
from kernelwright.tools.problem import Problem
from kernelwright.tools.sizing.selection import Selection, requests

COUNTS = """
import torch
import torch.nn as nn

N = 1 << 17


class Model(nn.Module):
    def forward(self, x):
        return torch.bincount(x, minlength=16)


def get_inputs():
    return [torch.randint(0, 16, (N,))]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(("device", "elements"), [("cuda:0", 1 << 17), ("cpu", None)])
def test_a_gpu_judges_at_the_problem_s_own_size_and_it_is_traced_there(device, elements):
    problem = Problem(name="counts", source=COUNTS)
    [own] = requests(problem, Selection(base=AtSize(index=0, problem=problem)), device, 0)[:1]
    [shape] = [one["tensor"]["shape"] for one in own.spec.inputs]
    assert shape == [elements] if elements else shape[0] < 1 << 17

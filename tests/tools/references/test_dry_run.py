"""What a reference weighs without being run."""

from kernelwright.tools.problem import Problem
from kernelwright.tools.references.dry_run import weigh

DISTANCES = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, y):
        return torch.cdist(x, y)

def get_inputs():
    return [torch.randn(40, 300), torch.randn(50, 300)]

def get_init_inputs():
    return []
"""


def test_distances_weigh_what_lies_between_their_operands():
    assert weigh(Problem(name="distances", source=DISTANCES)).operations >= 2 * 40 * 50 * 300

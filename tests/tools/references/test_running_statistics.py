"""Which buffers a reference changes, where luck leaves one of them as it was."""

from __future__ import annotations

from kernelwright.tools.problem import Problem
from kernelwright.tools.references.reference import Reference

SOURCE = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.idle = nn.BatchNorm1d(4)
    def forward(self, x):
        return self.norm(x - x.mean(0)) if {called} else x
def get_inputs():
    return [torch.tensor([[1.0, 2.0, 3.0, 4.0], [3.0, 4.0, 5.0, 6.0]])]
def get_init_inputs():
    return []
"""


def _changing(called: bool) -> frozenset[str]:
    reference = Reference(Problem(name="statistics", source=SOURCE.format(called=called)), "cpu")
    model = reference.model(0)
    reference.run(model, reference.inputs(0), 0)
    assert reference.changing is not None
    return reference.changing


def test_a_mean_of_exactly_nought_is_updated_all_the_same():
    assert _changing(True) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}


def test_a_layer_that_is_not_called_is_not():
    assert not _changing(False)

"""The compiler's drafts where there is a GPU, which the process that drafts cannot reach."""

from __future__ import annotations

import pytest

from kernelwright.agent.solve.drafting import Drafter
from kernelwright.policies.inductor.draft import DraftMode, draft
from kernelwright.tools.evaluation.pipeline import Evaluator
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem

pytestmark = pytest.mark.gpu
MODULE = """
import torch
import torch.nn as nn
rows, columns, wide = 512, 1024, 768
class Model(nn.Module):
    def __init__(self, columns, wide):
        super().__init__()
        self.linear = nn.Linear(columns, wide)
    def forward(self, x):
        return torch.sigmoid(self.linear(x)) * 2.0
def get_inputs():
    return [torch.randn(rows, columns)]
def get_init_inputs():
    return [columns, wide]
"""


@pytest.mark.parametrize("mode", [DraftMode.STRICT, DraftMode.SHARE])
def test_a_draft_is_made_and_judged_with_torchs_cuda_build(mode):
    """Torch's CUDA build makes a real tensor where a pretended one is made first, and found no GPU to make it on."""
    with Drafter() as drafter, Evaluator("cuda:0", workers=1) as evaluator:
        made = draft(MODULE, drafter.run, mode=mode)
        assert made.usable, made.refused
        rule = "strict" if mode is DraftMode.STRICT else "share:0.01"
        options = Options(own_work=rule, torch_compile=False)
        report = evaluator.evaluate(Problem(name="gated", source=MODULE), made.source, options)
    assert report.correct, report.explanation
    assert report.speedup is not None

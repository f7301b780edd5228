"""Multi-head attention of torch.nn is drafted without copies around its attention, and right."""

import pytest

from kernelwright.policies.inductor.draft import DraftMode, draft
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem

FRAME = """
import torch
from torch import nn

batch, length, keys, columns, heads = 2, 12, 9, 32, 2

class Model(nn.Module):
    def __init__(self, columns, heads):
        super().__init__()
        self.attend = nn.MultiheadAttention(columns, heads, batch_first={batch_first})
        self.half()
        self.eval()

    def forward(self, x{memory}):
        {mask}
        return torch.relu(self.attend({arguments}, need_weights=False{masked})[0]) + x

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [columns, heads]
"""
X = "torch.randn(batch, length, columns).half()"
SELF = {
    "batch_first": True, "memory": "", "mask": "", "arguments": "x, x, x", "masked": "", "inputs": X,
}  # fmt: skip
MASK = (
    "mask = torch.ones(x.shape[{axis}], x.shape[{axis}], dtype=torch.bool, device=x.device).triu(1)"
)
FORMS = {
    "of_itself": SELF,
    "of_itself_length_first": SELF | {"batch_first": False},
    "of_a_memory": SELF | {
        "memory": ", y", "arguments": "x, y, y", "inputs": f"{X}, {X.replace('length', 'keys')}",
    },
    "with_a_boolean_mask": SELF | {"mask": MASK.format(axis=1), "masked": ", attn_mask=mask"},
    "causal": SELF | {"mask": MASK.format(axis=1), "masked": ", attn_mask=mask, is_causal=True"},
}  # fmt: skip


@pytest.fixture(scope="module")
def evaluator():
    with Evaluator(device="cpu") as evaluator:
        yield evaluator


@pytest.mark.parametrize("mode", [DraftMode.STRICT, DraftMode.SHARE])
@pytest.mark.parametrize("name", sorted(FORMS))
def test_attention_of_a_module_reads_its_projections_in_place(drafter, evaluator, name, mode):
    problem = Problem(name=name, source=FRAME.format(**FORMS[name]))
    written = draft(problem.source, drafter.run, mode=mode, partial=mode is DraftMode.SHARE)
    assert written.usable, written.refused
    # Only a result in another order of memory than the module's own is copied.
    assert ("copy" in written.source) == (not FORMS[name]["batch_first"])
    rule = "report" if mode is DraftMode.SHARE else "strict"
    report = evaluator.evaluate(problem, written.source, Options(seed=1, sizes=1, own_work=rule))
    assert report.correct, report.explanation

"""A reduction over few long rows is cut into parts, and right by the judge; over many rows it is left alone."""

import pytest

from kernelwright.policies.transformations.process import answer
from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem

FRAME = """
import torch
from torch import nn
rows, columns = {rows}, {columns}
CPU_SIZES = {{"rows": 3, "columns": 5000}}
class Model(nn.Module):
    def forward(self, x):
        return {body}
def get_inputs():
    return [torch.randn(rows, columns){half}]
def get_init_inputs():
    return []
"""


def source_of(body, rows=8, columns=1 << 20, half=""):
    return FRAME.format(rows=rows, columns=columns, body=body, half=half)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("body", "half"),
    [
        ("x.sum(dim=-1)", ""),
        ("torch.mean(x, dim=1, keepdim=True)", ""),
        ("torch.amax(x, -1)", ""),
        ("x.amin(dim=-1)", ".half()"),
        ("x.sum()", ""),
        ("x.mean()", ".half()"),
    ],
)
def test_few_long_rows_are_reduced_in_two_launches(evaluator, body, half):
    source = source_of(body, half=half)
    made = answer(source)
    assert made.get("source"), made["refused"]
    report = evaluator.evaluate(
        Problem(name="reduced", source=source), made["source"], Options(seed=2)
    )
    assert report.correct, report.explanation
    assert sum(k.launches for k in report.compile.kernels) == 2


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (source_of("x.sum(dim=-1)", rows=4096, columns=1024), "few long rows"),
        (source_of("x.sum(dim=0)"), "not the last axis"),
        (source_of("torch.relu(x).sum(dim=-1)"), "more than one"),
    ],
)
def test_anything_else_is_left_to_the_compiler(source, why):
    assert why in answer(source)["refused"]

"""A large product of half precision is made by persistent programs, and right by the judge; others are left alone."""

import pytest

from kernelwright.policies.transformations.draft import may_transform
from kernelwright.policies.transformations.process import answer
from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem

FRAME = """
import torch
from torch import nn
rows, columns, depth = {rows}, 4096, 2048
CPU_SIZES = {{"rows": 150, "columns": {columns}, "depth": {depth}}}
class Model(nn.Module):
    def forward(self, a, b):
        return {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
PLAIN = "torch.randn(rows, depth).half(), torch.randn(depth, columns).half()"
LAYER = """
import torch
from torch import nn
rows, columns, depth = 4096, 4096, 2048
CPU_SIZES = {"rows": 5, "columns": 280, "depth": 96}
class Model(nn.Module):
    def __init__(self, depth, columns):
        super().__init__()
        self.layer = nn.Linear(depth, columns, dtype=torch.float16)
    def forward(self, x):
        return torch.relu(self.layer(x))
def get_inputs():
    return [torch.randn(rows // 4 + 1, 4, depth, dtype=torch.float16)]
def get_init_inputs():
    return [depth, columns]
"""


def source_of(body="a @ b", inputs=PLAIN, rows=4096, columns=270, depth=96):
    return FRAME.format(rows=rows, columns=columns, depth=depth, body=body, inputs=inputs)


TURNED = "torch.randn(depth, rows).half(), torch.randn(columns, depth).half()"
PROBLEMS = {
    "pointers": source_of(depth=91),
    "descriptors": source_of(columns=264),
    "both turned": source_of("torch.mm(a.T, b.t())", TURNED),
    "followed by a chain": source_of("torch.matmul(a, b).sigmoid() * 2.0", columns=264),
    "a layer": LAYER,
}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_a_large_product_of_half_precision_is_made_by_persistent_programs(evaluator, name):
    source = PROBLEMS[name]
    assert may_transform(source)
    made = answer(source)
    assert made.get("transformation") == "a product by persistent programs", made.get("refused")
    report = evaluator.evaluate(
        Problem(name="product", source=source), made["source"], Options(seed=3)
    )
    assert report.correct, report.explanation
    assert sum(k.launches for k in report.compile.kernels) == 1


def test_a_large_gpu_has_one_program_for_each_multiprocessor_at_the_problems_own_size(evaluator):
    from kernelwright.tools.tuning.launch_facts import launches_at

    source = PROBLEMS["descriptors"]
    problem, made = Problem(name="product", source=source), answer(source)["source"]
    launches = launches_at(
        evaluator.front().traced_at_own_size(problem, made, "sm_90", Options()).traced
    )
    assert [(one.function, tuple(one.grid)) for one in launches] == [
        ("persistent_product_kernel", (132, 1, 1))
    ]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (source_of(inputs=PLAIN.replace(".half()", "")), "half precision"),
        (source_of(rows=1024), "too few"),
        (source_of("(a @ b) + (a @ b)"), "add is not written after a product"),
        (source_of("torch.cumsum(a @ b, 1)"), "cumsum is not written after a product"),
        (source_of("(a @ b, b)"), "more than one"),
        (source_of().replace("2048", "2041"), "16 bytes"),
        (source_of(rows=16384), "keep a GPU busy"),
    ],
)
def test_other_products_are_left_alone(source, reason):
    assert reason in answer(source)["refused"].split("persistent programs:")[-1]

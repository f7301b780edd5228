"""A small product over a long axis is split over that axis, and right by the judge; others are left alone."""

import pytest

from kernelwright.policies.transformations.draft import may_transform
from kernelwright.policies.transformations.process import answer
from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem

FRAME = """
import torch
from torch import nn
rows, columns, depth = {rows}, {columns}, {depth}
CPU_SIZES = {{"rows": 33, "columns": {small}, "depth": 2500}}
class Model(nn.Module):
    def forward(self, a, b):
        return {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
PLAIN = "torch.randn(rows, depth){half}, torch.randn(depth, columns){half}"


def source_of(body="a @ b", inputs=PLAIN, rows=256, columns=256, depth=131072, half=""):
    inputs = inputs.replace("{half}", half)
    return FRAME.format(
        rows=rows, columns=columns, depth=depth, small=min(columns, 20), body=body, inputs=inputs
    )


PROBLEMS = {
    "square": source_of("torch.matmul(a, b)"),
    "vector": source_of("torch.matmul(a, b)", columns=1, rows=2048),
    "left transposed": source_of(
        "a.T @ b", "torch.randn(depth, rows), torch.randn(depth, columns)"
    ),
    "right transposed": source_of(
        "torch.mm(a, b.t())", "torch.randn(rows, depth), torch.randn(columns, depth)"
    ),
    "half": source_of("a @ b", half=".half()"),
}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_a_small_product_over_a_long_axis_is_made_in_two_launches(evaluator, name):
    source = PROBLEMS[name]
    assert may_transform(source)
    made = answer(source)
    assert made.get("source"), made["refused"]
    report = evaluator.evaluate(
        Problem(name="product", source=source), made["source"], Options(seed=3)
    )
    assert report.correct, report.explanation
    assert sum(k.launches for k in report.compile.kernels) == 2


def test_a_launch_has_programs_enough_for_a_large_gpu_at_the_problems_own_size(evaluator):
    """Sixteen tiles of 64 by 64 would leave most of 132 multiprocessors idle."""
    from kernelwright.tools.tuning.launch_facts import launches_at

    source = PROBLEMS["square"]
    front = evaluator.front()
    problem, made = Problem(name="product", source=source), answer(source)["source"]
    launches = launches_at(front.traced_at_own_size(problem, made, "sm_90", Options()).traced)
    assert [one.function for one in launches] == ["part_kernel", "join_kernel"]
    assert all(one.programs >= 256 for one in launches)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (source_of(rows=4096, columns=4096), "keeps a GPU busy"),
        (source_of(depth=1024), "keeps a GPU busy"),
        (source_of("torch.relu(a @ b)"), "not one product"),
        (source_of("a @ torch.relu(b)"), "neither part"),
        (
            source_of(inputs="torch.randn(3, rows, depth), torch.randn(3, depth, columns)"),
            "two matrices",
        ),
    ],
)
def test_anything_else_is_left_to_the_compiler(source, why):
    assert why in answer(source)["refused"]

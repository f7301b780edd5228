"""A product of a matrix and a vector is split over its long axis, and right by the judge; others are left alone."""

import pytest

from kernelwright.policies.transformations.process import answer
from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem

FRAME = """
import torch
rows, depth = {rows}, {depth}
CPU_SIZES = {{"rows": 33, "depth": 5003}}
class Model(torch.nn.Module):
    def forward(self, a, b):
        return {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
COLUMN = "torch.randn(rows, depth), torch.randn(depth, 1)"


def source_of(body="a @ b", inputs=COLUMN, rows=2048, depth=1 << 18):
    return FRAME.format(rows=rows, depth=depth, body=body, inputs=inputs)


PROBLEMS = {
    "column": source_of("torch.matmul(a, b)"),
    "vector": source_of("torch.mv(a, b)", "torch.randn(rows, depth), torch.randn(depth)"),
    "transposed": source_of("a.T @ b", "torch.randn(depth, rows), torch.randn(depth, 1)"),
    "half": source_of("a @ b", "torch.randn(rows, depth).half(), torch.randn(depth, 1).half()"),
}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_a_matrix_and_a_vector_are_multiplied_without_tiles_of_columns(evaluator, name):
    made = answer(PROBLEMS[name])
    assert made.get("transformation") == "a product of a matrix and a vector in two stages", made
    assert "tl.dot" not in made["source"]
    report = evaluator.evaluate(
        Problem(name="product", source=PROBLEMS[name]), made["source"], Options(seed=3)
    )
    assert report.correct, report.explanation
    assert sum(k.launches for k in report.compile.kernels) == 2


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (source_of(depth=512), "soon multiplied"),
        (
            source_of(inputs="torch.randn(rows, depth), torch.randn(depth, 2)"),
            "not one of a matrix and a vector",
        ),
        (source_of("(a @ b).relu()"), "what is returned is not one product"),
    ],
)
def test_anything_else_is_not_taken_for_one(source, why):
    assert (
        why in answer(source)["refused"]
        if "refused" in answer(source)
        else "vector" not in answer(source)["source"]
    )

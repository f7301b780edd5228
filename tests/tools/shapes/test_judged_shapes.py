"""Shapes in a problem's text: each gives a problem of its own, and a candidate that is cast as users cast it."""

from __future__ import annotations

import pytest

from kernelwright.tools.evaluation.empty_extents import with_empty_extents
from kernelwright.tools.evaluation.shape_verdicts import described_inputs, judged_at_every_shape
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import Failure, Fault, Report
from kernelwright.tools.shapes.judged_shapes import (
    JudgedShape,
    candidate_at,
    candidate_from,
    judged_shapes,
    problem_at,
    problem_to_judge,
    with_shapes,
    without_shapes,
)
from kernelwright.tools.sizing.drawn_sizes import author_sizes
from kernelwright.tools.sizing.selection import select_sizes

LINEAR = """import torch
import torch.nn as nn

rows, width = 4, 8


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.randn(rows, width)]


def get_inputs_flat():
    return [get_inputs()[0].flatten()[:8]]


def get_inputs_deep():
    return [torch.randn(2, rows, width)]


def get_init_inputs():
    return [width]
"""
PROBLEM = Problem(name="linear.py", source=LINEAR)
SHAPES = (
    JudgedShape(name="one row", sizes={"rows": 1}),
    JudgedShape(name="deep", inputs="get_inputs_deep", dtype="bfloat16"),
    JudgedShape(name="flat", inputs="get_inputs_flat"),
)


def test_shapes_are_read_as_they_were_written():
    joint = with_shapes(PROBLEM, SHAPES)
    assert judged_shapes(joint) == SHAPES
    assert without_shapes(joint).hash == PROBLEM.hash
    assert joint.hash != PROBLEM.hash
    assert judged_shapes(PROBLEM) == ()


def test_a_problem_at_a_shape_has_its_inputs_alone():
    joint = with_shapes(PROBLEM, SHAPES)
    described = [described_inputs(problem_at(joint, shape)) for shape in SHAPES]
    assert described == [("float32 1x8",), ("bfloat16 2x4x8",), ("float32 8",)]
    for shape in SHAPES:
        at_shape = problem_at(joint, shape)
        assert judged_shapes(at_shape) == ()
        assert "get_inputs_" not in at_shape.source


def test_a_function_with_two_returns_is_cast_in_both_also_in_a_text_with_tabs():
    source = LINEAR.replace(
        "    return [get_inputs()[0].flatten()[:8]]",
        "    if rows < 1:\n        return [torch.zeros(8)]\n    return [get_inputs()[0].flatten()[:8]]",
    ).replace("    ", "\t")
    problem = Problem(name="linear.py", source=source)
    for rows, dtype in ((4, "float16"), (0, "bfloat16")):
        shape = JudgedShape(
            name="flat", sizes={"rows": rows}, inputs="get_inputs_flat", dtype=dtype
        )
        at_shape = problem_at(with_shapes(problem, [shape]), shape)
        assert described_inputs(at_shape) == (f"{dtype} 8",)


def test_a_candidate_is_cast_after_its_constructor():
    namespace: dict[str, type] = {}
    text = candidate_at(LINEAR.replace("Model", "ModelNew"), SHAPES[1])
    exec(compile(text, "candidate.py", "exec"), namespace)
    assert str(namespace["ModelNew"](8).layer.weight.dtype) == "torch.bfloat16"
    assert candidate_at(LINEAR, SHAPES[0]) == LINEAR
    assert candidate_from(text) == LINEAR.replace("Model", "ModelNew")
    assert candidate_from(LINEAR) == LINEAR
    without_import = "from torch import nn\n"
    assert candidate_from(candidate_at(without_import, SHAPES[1])) == without_import


def test_an_empty_extent_is_asked_for_beside_the_own_size():
    shape = JudgedShape(name="empty", sizes={"rows": 0, "width": 16})
    joint = with_shapes(PROBLEM, [shape])
    judged = problem_to_judge(joint, shape)
    assert described_inputs(judged) == ("float32 4x16",)
    assert [size.sizes for size in author_sizes(judged).sizes] == [{"rows": 0}]
    assert described_inputs(problem_at(joint, shape)) == ("float32 0x16",)
    (extended,) = with_empty_extents(select_sizes(judged, "", "cpu", 1, 3), judged).empty[:1]
    assert (extended.sizes["rows"], extended.required) == (0, True)


def test_a_malformed_literal_is_named():
    problem = PROBLEM.model_copy(update={"source": LINEAR + '\nJUDGED_SHAPES = [{"rows": 3}]\n'})
    with pytest.raises(ProblemError, match="JUDGED_SHAPES must be a list"):
        judged_shapes(problem)


def test_the_report_is_that_of_the_shape_that_decides():
    def judge(problem: Problem, source: str, say: object) -> Report:
        report = Report(problem=problem.name, problem_hash=problem.hash, candidate_hash="c")
        if "deep" in problem.name:
            return report.with_(failure=Failure(fault=Fault.MISMATCH, message="wrong by 1"))
        return report.with_(correct=True)

    joint = with_shapes(PROBLEM, SHAPES)
    steps: list[str] = []
    report = judged_at_every_shape(joint, "class ModelNew: ...", SHAPES, judge, steps.append)
    assert [(s.name, s.correct) for s in report.shapes] == [
        ("one row", True),
        ("deep", False),
        ("flat", True),
    ]
    assert not report.correct
    assert report.problem_hash == joint.hash
    assert report.failure is not None
    assert report.failure.message == "at shape deep: wrong by 1"
    assert Report.model_validate_json(report.model_dump_json()) == report

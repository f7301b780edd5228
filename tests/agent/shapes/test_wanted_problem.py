"""Wanted shapes and dtypes become sizes or functions of a problem's text."""

from __future__ import annotations

import pytest

from kernelwright.agent.problems.other_inputs import with_first_inputs
from kernelwright.agent.shapes.shape_file import read_shapes
from kernelwright.agent.shapes.wanted_problem import problem_with_shapes
from kernelwright.errors import InputError
from kernelwright.tools.evaluation.shape_verdicts import described_inputs
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.shapes.judged_shapes import judged_shapes, problem_at

ATTENTION = """import torch
import torch.nn as nn

batch, seq, dim = 2, 16, 32


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.project = nn.Linear(dim, dim)

    def forward(self, x, mask, positions):
        return self.project(x) * mask[..., None] + positions[:, None]


def get_inputs():
    x = torch.rand(batch, seq, dim)
    return [x * 2, torch.ones(batch, seq), torch.arange(seq)]


def get_init_inputs():
    return [dim]
"""


def inputs_at(source: str, text: str, dtypes: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Returns the inputs at each shape."""
    problem = Problem(name="layer.py", source=source)
    joint = problem_with_shapes(problem, read_shapes(text) if text else (), dtypes)
    return [described_inputs(problem_at(joint, shape)) for shape in judged_shapes(joint)]


def test_shapes_of_inputs_become_sizes_where_the_text_shows_them():
    problem = Problem(name="layer.py", source=ATTENTION)
    joint = problem_with_shapes(problem, read_shapes('[{"mask": [1, 5]}]'), ())
    (shape,) = judged_shapes(joint)
    assert shape.sizes == {"batch": 1, "seq": 5}
    assert described_inputs(problem_at(joint, shape)) == (
        "float32 1x5x32",
        "float32 1x5",
        "int64 5",
    )


def test_another_rank_becomes_a_function_which_keeps_the_names_of_extents():
    problem = Problem(name="layer.py", source=ATTENTION)
    wanted = read_shapes('[{"name": "flat", "inputs": [[7, 32], [7], [7]]}]')
    joint = problem_with_shapes(problem, wanted, ())
    assert "def get_inputs_flat():\n    x = torch.rand((7, dim))\n" in joint.source
    (shape,) = judged_shapes(joint)
    assert described_inputs(problem_at(joint, shape)) == ("float32 7x32", "float32 7", "int64 7")


def test_a_scalar_in_the_place_of_a_range_and_a_name_without_ascii_letters_are_drawn():
    wanted = '[{"name": "\u00b2", "inputs": [[7, 32], [7], []]}]'
    with pytest.raises(ProblemError, match="shape \u00b2: "):  # the reference indexes the scalar
        inputs_at(ATTENTION, wanted)
    source = ATTENTION.replace("positions[:, None]", "positions.sum()")
    assert inputs_at(source, wanted) == [("float32 7x32", "float32 7", "int64 ()")]


def test_every_shape_comes_in_each_dtype_and_integers_stay():
    described = inputs_at(ATTENTION, '[{"seq": 3}]', ("bfloat16", "float32"))
    assert described == [
        ("bfloat16 2x3x32", "bfloat16 2x3", "int64 3"),
        ("float32 2x3x32", "float32 2x3", "int64 3"),
    ]


def test_functions_of_a_file_are_its_shapes():
    text = ATTENTION.replace("def get_inputs()", "def get_inputs_prefill()")
    text += "\n\ndef get_inputs_decode():\n    return [torch.randn(1, 1, dim), torch.ones(1, 1), torch.arange(1)]\n"
    described = inputs_at(with_first_inputs(text), "")
    assert [inputs[0] for inputs in described] == ["float32 2x16x32", "float32 1x1x32"]


def test_a_problem_without_shapes_stays_as_it_is():
    problem = Problem(name="layer.py", source=ATTENTION)
    assert problem_with_shapes(problem, (), ()) is problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[{"length": 3}]',
            "shape 1 sets length, which is no size of layer.py; its sizes are batch",
        ),
        (
            "[[[1, 1, 32]]]",
            "has 1 input, and forward is called with 3 (x, mask, positions): give each",
        ),
        ('[{"y": [1]}]', "has the input y; forward is called with x, mask, positions"),
        ('[{"name": "wide", "inputs": [[1, 1, 48], null, null]}]', "shape wide: "),
    ],
)
def test_what_does_not_fit_the_problem_is_said_in_one_line(text: str, message: str):
    with pytest.raises((InputError, ProblemError)) as error:
        inputs_at(ATTENTION, text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)

"""The sizes that a problem's author names are read from the problem's text."""

from __future__ import annotations

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.dry_run import run_once
from kernelwright.tools.references.small_sizes import shrink
from kernelwright.tools.sizing.drawn_sizes import CPU_BUDGET, DrawnSizes, author_sizes
from kernelwright.tools.sizing.selection import select_sizes


def test_the_author_s_sizes_come_first_and_may_not_be_refused():
    problem = find_by_name("fused softmax").model_copy(
        update={"source": find_by_name("fused softmax").source + SHAPES}
    )
    selection = select_sizes(problem, "x = 1", "cpu", seed=1 << 16, count=8)
    small = shrink(problem).sizes
    assert [size.sizes for size in selection.others[:2]] == [
        {"rows": 5, "columns": 7},
        {**small, "columns": 300},
    ]
    assert [size.required for size in selection.others[:3]] == [True, True, False]
    assert selection.others[0].strategy == "author"


SHAPES = '\nshapes = [{"rows": 5, "columns": 7}, {"columns": 300}]\n'


def test_an_author_s_shapes_are_read_from_the_problem():
    problem = find_by_name("fused softmax").model_copy(
        update={"source": find_by_name("fused softmax").source + SHAPES}
    )
    found = author_sizes(problem, {"rows": 3, "columns": 4})
    assert [d.sizes for d in found.sizes] == [
        {"rows": 5, "columns": 7},
        {"rows": 3, "columns": 300},
    ]
    assert run_once(found.sizes[0].applied(problem))[0].shape == (5, 7)
    assert found.sizes[0].why == "the author's shape 1"


def test_an_author_s_other_inputs_replace_get_inputs():
    text = "\ndef get_inputs_odd():\n    return [torch.randn(3, 7)]\n"
    problem = find_by_name("fused softmax").model_copy(
        update={"source": find_by_name("fused softmax").source + text}
    )
    (found,) = author_sizes(problem).sizes
    assert found.inputs == "get_inputs_odd"
    assert run_once(found.applied(problem))[0].shape == (3, 7)


def test_an_author_s_shape_beyond_the_budget_is_left_out_and_noted():
    text = '\nshapes = [{"rows": 5, "columns": 7}, {"rows": 9000, "columns": 9000}]\n'
    problem = find_by_name("fused softmax").model_copy(
        update={"source": find_by_name("fused softmax").source + text}
    )
    found = author_sizes(problem, budget=CPU_BUDGET)
    assert len(found.sizes) == 1
    assert found.notes == ("the author's shape 2 is too large here",)


def test_a_shape_that_names_nothing_of_the_reference_is_one_line_that_says_what_there_is():
    text = '\nshapes = [{"rows": 5, "colunms": 7}]\n'
    problem = find_by_name("fused softmax").model_copy(
        update={"source": find_by_name("fused softmax").source + text}
    )
    with pytest.raises(
        ProblemError,
        match=r"shapes names colunms, which is no number of the reference: it has columns, rows",
    ):
        author_sizes(problem)


def test_a_list_that_means_something_else_is_left_alone():
    text = '\nshapes = [{"name": "a"}, (3, 4)]\nSHAPES = [{"depth": 3}]\n'
    problem = find_by_name("fused softmax").model_copy(
        update={"source": find_by_name("fused softmax").source + text}
    )
    assert author_sizes(problem) == DrawnSizes(sizes=())

"""What a training's programs are called and how they are launched: neither changes what is computed, and no
held-out problem changes with it.
"""

from __future__ import annotations

import ast
import hashlib
from itertools import islice

import pytest

from kernelwright.rl.data.rows import Split
from kernelwright.rl.data.synth.engine.launching import DrawnLaunch, _free, _read_from_meta
from kernelwright.rl.data.synth.engine.naming import _replaced
from kernelwright.rl.data.synth.engine.tasks import stream, tasks
from kernelwright.rl.data.synth.engine.verifying import options

STYLES = {"tuned": "@triton.autotune", "meta": "lambda meta", "strided": "stride_am"}
CONSTRUCTORS = {
    "tuples": "stride=(1, 1",
    "axes": "kernel_size_h, kernel_size_w",
    "flags": "ceil_mode=False",
    "operation": "self.conv_transpose1d.weight",
}
PARAMETERS = {
    "own": "self.bias, out",
    "one_number": "nn.Parameter(torch.tensor(",
    "kept": "identity = ",
    "flagged": "nn.Linear(in_features, out_features, bias=bias)",
    "followed": "matmul_kernel[grid](A, B, hidden",
    "samples": "columns = hidden.stride(0)",
}
BEFORE = {
    "held_out_composition": "d42a7ab204c75f26",
    "held_out_depth": "f7e7db34dd4fa660",
    "held_out_family": "a0a461e7b0cae761",
}
"""Of 2026-11-25, when batch norms of generated problems lost their running statistics (`track_running_stats=False`):
the judge compares those now, and no generated answer updates them. The names changed nothing.
"""


@pytest.fixture(scope="module")
def drawn():
    return tasks(Split.TRAIN, 500, 11)


def constructor(source: str, name: str) -> list[str]:
    body = next(
        n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name
    ).body
    made = next((n for n in body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    return [a.arg for a in made.args.args] if made else ["self"]


def test_the_answer_takes_what_the_reference_takes_under_the_same_names(drawn):
    for task in drawn:
        assert constructor(task.problem.source, "Model") == constructor(
            task.solution, "ModelNew"
        ), task.problem.name


def test_names_are_many_more_than_the_families_have(drawn):
    plain = tasks(Split.HELD_OUT_COMPOSITION, 500, 11)
    names = [
        {n for t in some for n in constructor(t.problem.source, "Model")} for some in (drawn, plain)
    ]
    assert len(names[0]) > 3 * len(names[1])


def test_held_out_problems_are_what_they_were_before_there_were_such_names():
    """The digests were taken of the generator before (revision 10f387e)."""
    found = {}
    for split in (Split.HELD_OUT_COMPOSITION, Split.HELD_OUT_DEPTH, Split.HELD_OUT_FAMILY):
        text = "\n".join(task.problem.source for task in tasks(split, 20, 0))
        found[str(split)] = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert found == BEFORE


def test_a_name_is_not_taken_for_a_keyword_or_for_anothers_attribute():
    line = (
        "self.conv = nn.Conv2d(stride, stride=stride)\nself.stride = "
        "self.conv.stride\nk[grid](stride_ptr, my_stride)"
    )
    assert _replaced(line, "stride", "pace") == (
        "self.conv = nn.Conv2d(pace, stride=pace)\nself.pace = self.conv.stride\nk[grid](pace_ptr, my_stride)"
    )
    assert (
        _replaced("def __init__(self, stride=1):", "stride", "pace")
        == "def __init__(self, pace=1):"
    )


def test_every_style_of_launch_is_drawn_about_as_often_as_it_should_be(drawn):
    shares = {
        name: sum(mark in task.solution for task in drawn) / len(drawn)
        for name, mark in STYLES.items()
    }
    assert 0.02 < shares["tuned"] < 0.12
    assert 0.06 < shares["meta"] < 0.25
    assert 0 < shares["strided"] < 0.1


def test_layers_take_their_window_as_numbers_tuples_or_axis_by_axis(drawn):
    for name, mark in CONSTRUCTORS.items():
        assert any(mark in task.solution for task in drawn), name


def test_a_grid_reads_the_blocks_that_its_numbers_are():
    launch = DrawnLaunch(
        0,
        "k",
        "(triton.cdiv(M, 64), triton.cdiv(O, 64))",
        "x, M, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32",
    )
    assert (
        _read_from_meta(launch)
        == '(triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(O, meta["BLOCK_N"]))'
    )
    assert _read_from_meta(DrawnLaunch(0, "k", "(triton.cdiv(n, 100),)", "x, n, BLOCK=64")) == "", (
        "nobody's number"
    )


def test_blocks_that_something_else_was_counted_by_are_not_tuned():
    launch = DrawnLaunch(1, "part_kernel", "(blocks,)", "x, part, n, BLOCK=4096")
    host = ["blocks = triton.cdiv(n, 4096)", "part_kernel[(blocks,)](x, part, n, BLOCK=4096)"]
    assert not _free(launch, host, "")
    assert _free(DrawnLaunch(0, "k", "(rows,)", "x, out, columns, BLOCK=1024"), host, "")
    assert not _free(
        DrawnLaunch(0, "k", "(rows,)", "x, out, columns, BLOCK=1024"), [], "tl.atomic_add(p, x)"
    )


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("style", STYLES | CONSTRUCTORS | PARAMETERS)
def test_each_style_passes_the_tools(style, evaluator):
    mark = (STYLES | CONSTRUCTORS | PARAMETERS)[style]
    some = islice((t for t in stream(Split.TRAIN, 91) if mark in t.solution), 2)
    for task in some:
        report = evaluator.evaluate(task.problem, task.solution, options("sm_90"))
        assert report.correct, (task.problem.name, report.failure)

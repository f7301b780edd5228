"""Sizes are drawn anew from a seed, run in the reference, straddle blocks and keep what binds the numbers of a
problem to one another.
"""

from __future__ import annotations

import dis
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import pytest

from kernelwright.agent.problems.finding import catalogue, find_by_name
from kernelwright.tools.parsing import code_of
from kernelwright.tools.problem import (
    Problem,
    inner_integers,
    module_integers,
    resized,
    with_integers,
)
from kernelwright.tools.references.dry_run import measure_cost, run_once
from kernelwright.tools.references.small_sizes import shrink
from kernelwright.tools.sizing.drawn_sizes import CPU_BUDGET, GPU_BUDGET, DrawnSizes
from kernelwright.tools.sizing.draws import draw_sizes, draw_varied, sizes_that_reach
from kernelwright.tools.sizing.learning import learn_structure
from kernelwright.tools.sizing.strategies import FURTHER, OF_THE_CANDIDATE
from kernelwright.tools.sizing.structure import Load

ROOT = Path(__file__).parents[3]
PROBLEMS = catalogue()
BLOCKS = [16, 64]
FORM = """
import torch
from torch import nn
import torch.nn.functional as F

{sizes}

class Model(nn.Module):
    def __init__(self, *widths):
        super().__init__()
        {init}

    def forward(self, x, *more):
        return {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{init_inputs}]
"""


def written(
    sizes: str, forward: str, inputs: str, init: str = "pass", init_inputs: str = ""
) -> Problem:
    text = FORM.format(
        sizes=textwrap.dedent(sizes),
        forward=forward,
        inputs=inputs,
        init=init,
        init_inputs=init_inputs,
    )
    return Problem(name="written.py", source=text)


EQUAL_WIDTHS = written(
    "rows = 64\nwidth = 48\nother = 48",
    "x + self.linear(x)",
    "torch.rand(rows, width)",
    "self.linear = nn.Linear(widths[0], widths[1])",
    "width, other",
)
HEADS = written(
    "batch = 4\nlength = 24\nheads = 12\nhead_dim = 20\nembedding = 240",
    "self.out(x.view(x.shape[0], x.shape[1], self.heads, self.dim).softmax(-1).flatten(2))",
    "torch.rand(batch, length, embedding)",
    "self.heads, self.dim = widths[:2]; self.out = nn.Linear(widths[2], widths[2])",
    "heads, head_dim, embedding",
)
GROUPED = written(
    "batch_size = 8\nchannels = 48\nheight = 20\nwidth = 24",
    "self.norm(x)",
    "torch.rand(batch_size, channels, height, width)",
    "self.norm = nn.GroupNorm(8, widths[0]); nn.init.normal_(self.norm.weight)",
    "channels",
)
TWICE = written(
    "batch_size = 6\nheight = 10\nwidth = 16\nchannels = 32",
    "self.norm(x.repeat(1, 1, 1, 2))",
    "torch.rand(batch_size, channels, height, width)",
    "self.norm = nn.LayerNorm(widths[0])",
    "channels",
)
INDEX = written(
    "vocabulary = 500\nlength = 20",
    "self.table(x)",
    "torch.randint(0, 500, (16, length))",
    "self.table = nn.Embedding(widths[0], 64)",
    "vocabulary",
)
BIAS = written(
    "",
    "F.relu(F.batch_norm(F.conv2d(x, more[0], more[1], padding=1), None, None, training=True))",
    "torch.randn(4, 3, 16, 16), torch.randn(6, 3, 3, 3), torch.randn(6)",
)
MASKED = written(
    "",
    "F.gelu(torch.masked_select(x, more[0]))",
    "torch.randn(7, 9), torch.arange(63).view(7, 9) % 3 == 0",
)
STRIDED = written(
    "batch_size = 8\nchannels = 12\nlength = 200\nkernel_size = 15\nstride = 9\nnum_layers = 11",
    "F.max_pool1d(x, kernel_size=self.size, stride=self.stride)",
    "torch.rand(batch_size, channels, length)",
    "self.size, self.stride, self.layers = widths",
    "kernel_size, stride, num_layers",
)
RECURRENT = written(
    "batch_size = 5\nlength = 64\nwidth = 24",
    "self.cells(x)[0]",
    "torch.rand(batch_size, length, width)",
    "self.cells = nn.LSTM(widths[0], widths[0], 2, batch_first=True)",
    "width",
)
BOUND = {
    "equal widths": EQUAL_WIDTHS,
    "heads": HEADS,
    "grouped": GROUPED,
    "twice": TWICE,
    "index": INDEX,
    "bias": BIAS,
    "masked": MASKED,
    "strided": STRIDED,
    "recurrent": RECURRENT,
}
FIXED = {
    "widths inside Model": written("def given():\n    return torch.rand(2, 4)", "self.linear(x)", "given()",
    "self.linear = nn.Linear(4, 4)"),
    "never runs": written("rows = 4096", "x @ x", "torch.rand(rows, 3)"),
    "literal values": written("", "torch.linalg.cholesky(x)", "torch.tensor([[4.0, 2.0], [2.0, 3.0]])"),
}  # fmt: skip


def drawn(
    problem: Problem, seed: int = 1, count: int = 8, blocks: list[int] = BLOCKS
) -> DrawnSizes:
    return draw_varied(problem, shrink(problem).sizes, blocks, seed, count)


def values(found: DrawnSizes, name: str) -> list[int]:
    return [d.sizes[name] for d in found.sizes]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_every_size_that_is_drawn_runs_in_the_reference_within_the_budget(problem: Problem):
    found = drawn(problem)
    assert len(found.sizes) == 8, found.notes
    base = measure_cost(problem.with_sizes(shrink(problem).sizes))
    for size in found.sizes:
        resized = size.applied(problem)
        assert run_once(resized)
        cost = measure_cost(resized)
        assert cost.elements <= CPU_BUDGET.elements
        assert cost.operations <= CPU_BUDGET.operations
        assert cost.inputs != base.inputs
        assert [len(s) for s in cost.outputs] == [len(s) for s in base.outputs]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_sizes_are_distinct_new_and_described(problem: Problem):
    sizes = [d.sizes for d in drawn(problem).sizes]
    assert len({tuple(sorted(s.items())) for s in sizes}) == len(sizes)
    full = module_integers(problem.source)
    for size in sizes:
        assert size != shrink(problem).sizes
        assert {**full, **size} != full
    assert all(d.why for d in drawn(problem).sizes)


@pytest.mark.parametrize("name", BOUND)
def test_sizes_of_problems_whose_numbers_are_bound_run_with_data(name: str):
    for seed in (1, 2):
        found = drawn(BOUND[name], seed)
        assert len(found.sizes) == 8, found.notes
        for size in found.sizes:
            assert run_once(size.applied(BOUND[name]))


def test_a_draw_is_repeated_by_its_seed_and_differs_from_that_of_another():
    problem = find_by_name("matmul")
    assert drawn(problem, 7) == drawn(problem, 7)
    assert drawn(problem, 7).sizes != drawn(problem, 8).sizes


@pytest.mark.slow
def test_another_process_draws_the_same():
    problem, code = find_by_name("conv1d"), ("from tests.tools.sizing.test_draws import drawn, find_by_name; "
        "print(drawn(find_by_name('conv1d'), 5))")  # fmt: skip
    text = code.replace("tests.tools.sizing.test_draws", "test_draws")
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]; "
    other = subprocess.run(
        [sys.executable, "-c", path + text], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert other.stdout.strip() == str(drawn(problem, 5))


@pytest.mark.parametrize("name", ["fused_softmax", "matmul", "layer_norm", "linear_gelu"])
def test_blocks_are_straddled_and_passed(name: str):
    problem = find_by_name(name.replace("_", " "))
    structure = learn_structure(problem, shrink(problem).sizes)
    numbers = [{n for seed in range(3) for n in values(drawn(problem, seed, blocks=[64]),
        d.name)} for d in structure.dimensions]  # fmt: skip
    for dimension, found in zip(structure.dimensions, numbers, strict=True):
        assert {63, 65} <= found | {shrink(problem).sizes.get(dimension.name)}, (
            "the base size counts"
        )
        assert any(n > 128 and n % 64 for n in found), "no loop over several blocks with a rest"
        assert any(n % 16 == 0 for n in found), (
            "nothing that 16 divides: Triton compiles another kernel for it"
        )


def test_the_first_size_is_beyond_a_block_in_every_dimension():
    for name in ("matmul", "fused_softmax", "batched_matmul"):
        problem = find_by_name(name.replace("_", " "))
        structure = learn_structure(problem, shrink(problem).sizes)
        for seed in range(4):
            first = drawn(problem, seed, blocks=[32]).sizes[0].sizes
            assert all(first[d.name] > 32 for d in structure.dimensions if not d.batch), first


def test_extents_of_one_size_differ_so_that_a_transposition_shows():
    found = drawn(find_by_name("matmul"), 3)
    assert all(len({d.sizes[n] for n in "mkn"}) == 3 for d in found.sizes)


def test_the_number_that_is_written_in_the_problem_is_drawn_where_there_is_room():
    for seed in range(6):
        assert 4096 in values(
            drawn(find_by_name("fused softmax"), seed, blocks=[64, 4096]), "columns"
        )


def test_thousands_of_numbers_do_not_slow_a_draw_or_push_out_powers_of_two():
    problem = find_by_name("fused softmax")
    started = time.process_time()
    found = draw_varied(problem, {}, [128, *range(1001, 90_001, 3), -5, 0, 1 << 60], 1, 8)
    assert time.process_time() - started < 2
    assert len(found.sizes) == 8
    assert any(n % 128 in (1, 127, 0) for n in values(found, "columns") + values(found, "rows"))


def test_equal_widths_move_together():
    found = drawn(EQUAL_WIDTHS)
    assert values(found, "width") == values(found, "other")
    assert len(set(values(found, "width"))) > 3


def test_a_product_of_two_numbers_follows_both():
    found = drawn(HEADS)
    products = [
        a * b for a, b in zip(values(found, "heads"), values(found, "head_dim"), strict=True)
    ]
    assert values(found, "embedding") == products
    assert len(set(values(found, "heads"))) > 2
    assert len(set(values(found, "head_dim"))) > 2


def test_a_multiple_stays_a_multiple():
    assert all(n % 8 == 0 for n in values(drawn(GROUPED), "channels"))
    assert len(set(values(drawn(GROUPED), "channels"))) > 1
    found = drawn(TWICE)
    assert values(found, "channels") == [2 * n for n in values(found, "width")]


def test_the_bound_of_an_index_follows_its_table():
    found = draw_varied(INDEX, {}, BLOCKS, 1, 8)
    assert values(found, "vocabulary") == values(found, "x.high")


def test_what_is_computed_is_never_changed():
    found = drawn(STRIDED)
    assert not {"kernel_size", "stride", "num_layers"} & {
        name for d in found.sizes for name in d.sizes
    }
    windows = drawn(BIAS)
    assert not {"more[0].shape[2]", "more[0].shape[3]"} & {
        name for d in windows.sizes for name in d.sizes
    }


def test_a_recurrence_is_kept_short():
    found = drawn(RECURRENT)
    assert len(set(values(found, "length"))) > 2
    assert all(measure_cost(d.applied(RECURRENT)).ops <= CPU_BUDGET.calls for d in found.sizes)


@pytest.mark.parametrize("name", FIXED)
def test_a_problem_without_a_free_size_gives_none_and_says_why(name: str):
    found = drawn(FIXED[name])
    assert found.sizes == ()
    assert any(note.startswith("0 of 8 sizes: ") for note in found.notes), found.notes


def test_weights_change_with_the_sizes_on_a_gpu_too():
    problem = find_by_name("linear gelu")
    found = draw_sizes(problem, {}, (*OF_THE_CANDIDATE, *FURTHER), 1, 8, blocks=[128], on_cpu=False)
    assert len(set(values(found, "in_features"))) > 4
    for size in found.sizes:
        assert GPU_BUDGET.holds(measure_cost(size.applied(problem)))


def test_fewer_sizes_than_asked_for_are_noted():
    problem = written("rows = 2", "x + 1", "torch.rand(rows, 1 << 16)")
    found = draw_varied(problem, {}, [], 1, 80)
    assert 0 < len(found.sizes) < 80
    assert any(
        "of 80 sizes: no more distinct ones within the budget" in note for note in found.notes
    )


def test_sizes_that_reach_take_written_values_and_cross_thresholds():
    problem, text = find_by_name("fused softmax"), "def f(n):\n    return n > 2000 or n < 100_000\n"
    found = sizes_that_reach(problem, shrink(problem).sizes, text, 16)
    assert found.sizes[0].sizes["columns"] == 4096, (
        "the first is as near to the full size as there is room"
    )
    assert any(d.sizes["columns"] == 2001 for d in found.sizes)
    assert any(d.sizes["rows"] * d.sizes["columns"] > 100_000 for d in found.sizes)
    for size in found.sizes:
        assert run_once(size.applied(problem))
    assert found == sizes_that_reach(problem, shrink(problem).sizes, text, 16)


def test_a_problem_without_a_free_size_reaches_nothing_and_says_so():
    found = sizes_that_reach(FIXED["literal values"], {}, "x = 100", 6)
    assert found.sizes == ()
    assert found.notes[-1].startswith("0 of 6 sizes: ")


@pytest.mark.parametrize("name", ["matmul", "attention", "group_norm", "conv1d", "linear_gelu"])
def test_what_a_choice_weighs_is_estimated_well(name: str):
    problem = find_by_name(name.replace("_", " "))
    structure = learn_structure(problem, shrink(problem).sizes)
    for factor in (1, 2, 3):
        multipliers = [factor * d.base + factor - 1 for d in structure.dimensions]
        cost = measure_cost(problem.with_sizes(structure.sizes(multipliers)))
        guess = structure.load(multipliers)
        assert guess.elements == pytest.approx(cost.elements, rel=0.05)
        assert guess.rows == pytest.approx(Load.of(cost).rows, rel=0.1)
        assert cost.operations / 2 < guess.operations < cost.operations * 3


def test_a_resized_problem_is_its_syntax_tree_with_other_numbers_as_text():
    for problem in (find_by_name("attention"), HEADS, BIAS):
        for size in drawn(problem).sizes:
            assert problem.with_sizes(size.sizes).source == with_integers(
                problem.source, size.sizes
            )


FOLDED = """
import torch
from torch import nn

rows, columns = 16, 32
half = 1 / rows
shape = (4, 8)


class Model(nn.Module):
    def forward(self, x):
        return x.sum() * (64 if x.dim() == 2 else 128)


def get_inputs(scale=(2, 3)):
    return [torch.randn(5, (7, 9)[1]), torch.rand(shape), torch.zeros(rows, columns)]


def get_init_inputs():
    return [6, [10, 11]]
"""


def instructions(code: types.CodeType) -> list[object]:
    return [
        (
            one.opname,
            one.starts_line,
            instructions(v) if isinstance(v := one.argval, types.CodeType) else repr(v),
        )
        for one in dis.get_instructions(code)
    ]


@pytest.mark.parametrize(
    "name", ["attention", "group norm", "conv1d", "linear gelu", "row sum", "folded"]
)
def test_a_problem_at_other_sizes_is_compiled_once_with_numbers_put_in(name: str):
    source = FOLDED if name == "folded" else find_by_name(name).source
    names = {**module_integers(source), **inner_integers(source)}
    for factor in (1, 3):
        text = resized(source, {key: value * factor + 1 for key, value in names.items()})
        assert instructions(code_of(text, "<reference>")) == instructions(
            compile(text, "<reference>", "exec")
        )


def test_learning_is_quick_and_a_further_draw_takes_milliseconds():
    problem = find_by_name("row sum")
    base = shrink(problem).sizes
    drawn(problem, 100)
    started = time.process_time()
    for seed in range(101, 111):
        draw_varied(problem, base, BLOCKS, seed, 8)
    assert (time.process_time() - started) / 10 < 0.06


def test_a_width_that_is_zero_at_small_sizes_is_drawn_where_it_is_not():
    """`channels // reduction`, as a squeeze-and-excitation layer has it."""
    narrow = "widths[0] // widths[1]"
    init = f"self.down, self.up = nn.Linear(widths[0], {narrow}), nn.Linear({narrow}, widths[0])"
    problem = written(
        "channels = 64", "self.up(self.down(x))", "torch.randn(4, channels)", init, "channels, 8"
    )
    found = draw_varied(problem, {"channels": 5}, BLOCKS, 1, 4)
    assert len(set(values(found, "channels"))) > 1

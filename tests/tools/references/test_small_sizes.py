"""Problems shrink to sizes a CPU can interpret: small, odd, and such that the reference still runs."""

import textwrap

import pytest
import torch

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.dry_run import DryRunFailed, measure_cost, run_once
from kernelwright.tools.references.size_search import MAX_SHRUNK_ELEMENTS, MAX_SHRUNK_OPERATIONS
from kernelwright.tools.references.small_sizes import OWN_SIZES_ARE_SMALL, SizesOrigin, shrink

MODEL = """
import torch
from torch import nn

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
    source = MODEL.format(
        sizes=textwrap.dedent(sizes),
        forward=forward,
        inputs=inputs,
        init=init,
        init_inputs=init_inputs,
    )
    return Problem(name="written.py", source=source)


SOFTMAX = written(
    "batch_size = 4096\ndim = 393216", "torch.softmax(x, dim=1)", "torch.rand(batch_size, dim)"
)
LINEAR = written(
    "batch_size = 1024\nin_features = 8192 * 2\nout_features = 8192",
    "self.linear(x)",
    "torch.rand(batch_size, in_features)",
    "self.linear = nn.Linear(*widths)",
    "in_features, out_features",
)
GROUPS = written(
    "batch_size, channels = 64, 512\nheight = width = 128\ngroups = 32",
    "self.norm(self.conv(x))",
    "torch.rand(batch_size, channels, height, width)",
    "self.conv = nn.Conv2d(widths[0], widths[0], 3, groups=widths[1]); self.norm = nn.GroupNorm(widths[1], widths[0])",
    "channels, groups",
)
EQUAL = written(
    "in_channels = 128\nout_channels = 128\nsize = 512",
    "self.conv(x)",
    "torch.rand(16, in_channels, size, size)",
    "self.conv = nn.Conv2d(widths[0], widths[1], 3, groups=widths[0]); assert widths[0] == widths[1]",
    "in_channels, out_channels",
)
INLINE = written("", "torch.relu(x)", "torch.randn(4096, 8192)")
TUPLE = written("shape = (32768,)\nrows = 32768", "torch.cumsum(x, 1)", "torch.rand(rows, *shape)")
INDEX = written(
    "vocabulary = 50000\nlength = 2048",
    "self.table(x)",
    "torch.randint(0, 50000, (16, length))",
    "self.table = nn.Embedding(widths[0], 64)",
    "vocabulary",
)
READS_A_NUMBER = written(
    "rows = 65536\ncolumns = 4096",
    "x * (2 if x.sum().item() > 0 else 3)",
    "torch.rand(rows, columns)",
)
BOUND = written(
    "batch_size = 64\nheight = 128\nwidth = 64\nchannels = 128",
    "self.norm(x.repeat(1, 1, 1, 2))",
    "torch.rand(batch_size, channels, height, width)",
    "self.norm = nn.LayerNorm(widths[0])",
    "channels",
)
RECURRENT = written(
    "batch_size = 16\nlength = 2048\nwidth = 256",
    "self.cells(x)[0]",
    "torch.rand(batch_size, length, width)",
    "self.cells = nn.LSTM(widths[0], widths[0], 4, batch_first=True)",
    "width",
)
ENDLESS = written(
    "length = 100000\ncolumns = 512",
    "sum((x[i] for i in range(x.shape[0])), torch.zeros(x.shape[1]))",
    "torch.rand(length, columns)",
)
ALL = {
    "softmax": SOFTMAX,
    "linear": LINEAR,
    "groups": GROUPS,
    "equal": EQUAL,
    "inline": INLINE,
    "tuple": TUPLE,
    "index": INDEX,
    "reads_a_number": READS_A_NUMBER,
    "bound": BOUND,
    "recurrent": RECURRENT,
    "endless": ENDLESS,
}


@pytest.mark.parametrize("name", ALL)
def test_a_large_problem_becomes_small_and_still_runs(name: str):
    problem = ALL[name]
    found = shrink(problem)
    assert (found.how, found.fits, found.note) == (SizesOrigin.SEARCHED, True, "")
    small = problem.with_sizes(found.sizes)
    cost = measure_cost(small)
    assert cost.elements <= MAX_SHRUNK_ELEMENTS
    assert cost.operations <= MAX_SHRUNK_OPERATIONS
    assert all(bool(torch.isfinite(o).all()) for o in run_once(small))


def test_sizes_are_odd_and_different_where_nothing_binds_them():
    for problem in (SOFTMAX, LINEAR):
        sizes = list(shrink(problem).sizes.values())
        assert all(size % 2 for size in sizes)
        assert len(set(sizes)) == len(sizes)


def test_what_the_model_divides_stays_divisible():
    sizes = shrink(GROUPS).sizes
    assert sizes["channels"] % sizes.get("groups", 32) == 0
    assert sizes["channels"] < 512


def test_sizes_that_are_bound_to_one_another_shrink_together():
    sizes = shrink(BOUND).sizes
    assert sizes["channels"] == 2 * sizes["width"] < 128


def test_the_same_problem_always_gets_the_same_sizes():
    from kernelwright.tools.references.small_sizes import _shrink

    first = shrink(GROUPS)
    _shrink.cache_clear()
    assert shrink(GROUPS) == first


def test_a_reference_with_its_own_cpu_sizes_keeps_them():
    problem = find_by_name("fused softmax")
    assert shrink(problem).sizes == problem.cpu_sizes
    assert shrink(problem).how is SizesOrigin.OWN


def test_a_small_problem_is_left_as_it_is():
    found = shrink(written("rows = 3\ncolumns = 40", "x + 1", "torch.rand(rows, columns)"))
    assert (found.sizes, found.how, found.note, found.fits) == (
        {},
        SizesOrigin.UNCHANGED,
        OWN_SIZES_ARE_SMALL,
        True,
    )


def test_kernel_sizes_and_strides_are_never_touched():
    problem = written(
        "batch_size = 64\nchannels = 64\nlength = 65536\nkernel_size = 15\nstride = 9",
        "torch.nn.functional.max_pool1d(x, kernel_size, stride)",
        "torch.rand(batch_size, channels, length)",
    )
    found = shrink(problem)
    assert found.fits
    assert not {"kernel_size", "stride"} & set(found.sizes)


def test_a_size_that_the_model_reads_for_itself_stays():
    """A candidate that reads its own copy of it would not see it change: an honest one was refused."""
    problem = written(
        "batch_size = 256\nwidth = 65536",
        "x + torch.zeros(batch_size, 1)",
        "torch.rand(batch_size, width)",
    )
    found = shrink(problem)
    assert set(found.sizes) == {"width"}
    assert found.fits


def test_widths_written_inside_the_model_stay_and_the_note_says_so():
    problem = written(
        "batch_size = 512",
        "self.linear(x)",
        "torch.rand(batch_size, 4096)",
        "self.linear = nn.Linear(4096, 4096)",
    )
    found = shrink(problem)
    assert not found.fits
    assert "widths are written inside Model" in found.note
    assert found.sizes["batch_size"] < 100


def test_a_reference_that_never_runs_says_what_it_raised():
    found = shrink(written("rows = 4096", "x @ x", "torch.rand(rows, 3)"))
    assert (found.sizes, found.how, found.fits) == ({}, SizesOrigin.UNCHANGED, False)
    assert "cannot be shrunk: RuntimeError" in found.note


def test_outputs_that_would_be_constant_get_larger_sizes():
    problem = written(
        "rows = 16\ncolumns = 4096",
        "x[:, ::7].argsort(1).float()[:, :1] * 0 + x[:, 16:17].ceil()",
        "torch.rand(rows, columns)",
    )
    assert shrink(problem).flat
    problem = written(
        "rows = 4096\ncolumns = 64",
        "torch.where(x.new_tensor(x.shape[1] > 7) > 0, x, x * 0)",
        "torch.rand(rows, columns)",
    )
    found = shrink(problem)
    assert not found.flat
    assert found.sizes.get("columns", 64) > 7


def test_the_processs_own_random_numbers_are_left_alone():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    run_once(SOFTMAX.with_sizes({"batch_size": 3, "dim": 5}))
    assert torch.equal(state, torch.get_rng_state())


def test_a_dry_run_that_fails_says_how_far_it_came():
    with pytest.raises(DryRunFailed, match="over 50 aten calls") as caught:
        measure_cost(ENDLESS, 50)
    assert caught.value.ops == 51


def test_weights_that_stay_large_are_interpreted_where_there_is_little_to_do():
    wide = """
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(1024, 512)

        def forward(self, x):
            return self.linear(x)

    def get_inputs():
        return [torch.randn(64, 1024)]

    def get_init_inputs():
        return []
    """
    small = shrink(Problem(name="wide", source=textwrap.dedent(wide)))
    assert small.fits
    assert "weights of layers" in small.note
    deep = textwrap.dedent(wide).replace("nn.Linear(1024, 512)", "nn.Linear(1024, 8192)")
    assert not shrink(Problem(name="deep", source=deep)).fits

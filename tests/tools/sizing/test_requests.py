"""What the tracer is asked for, where the reference reads the values of its inputs."""

from bench.judge_suites import problem_of
from kernelwright.tools.problem import Problem
from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.sizing.selection import Selection, select_sizes, trace_requests

COUNTS = """
import torch
import torch.nn as nn

N = 16_777_216
CPU_SIZES = {"N": 999}


class Model(nn.Module):
    def forward(self, x):
        return torch.bincount(x, minlength=16)


def get_inputs():
    return [torch.randint(0, 16, (N,))]


def get_init_inputs():
    return []
"""


def test_a_gpu_judges_at_the_problem_s_own_size_and_it_is_traced_there():
    problem = Problem(name="counts", source=COUNTS)
    shapes = []
    for device in ("cuda:0", "cpu"):
        own = trace_requests(problem, Selection(base=AtSize(index=0, problem=problem)), device, 0)[
            0
        ]
        shapes += [one["tensor"]["shape"] for one in own.spec.inputs]
    on_gpu, on_cpu = shapes
    assert on_gpu == [1 << 24]
    assert on_cpu[0] < 1 << 24


def test_on_a_gpu_the_last_sizes_have_one_full_extent_and_few_of_all_else():
    problem = problem_of("row_sum")
    for seed in range(6):
        selection = select_sizes(problem, "x = 1\n", "cuda:0", (1000 + seed << 16) + 77 * seed, 8)
        last = [size.sizes for size in selection.others[-2:]]
        (long,), (many,) = [[s for s in last if s[name] > 100] for name in ("columns", "rows")]
        assert (long["columns"], many["rows"]) == (4096, 16384)
        assert max(long["rows"], many["columns"]) <= 7
        assert len(selection.others) == 8, "they take the places of others"


def test_on_a_gpu_some_model_that_is_called_again_is_given_more_rows_than_at_first():
    problem = problem_of("fused_softmax")
    for seed in range(12):
        selection = select_sizes(problem, "x = 1\n", "cuda:0", (2000 + seed << 16) + 77 * seed, 8)
        requests = trace_requests(problem, selection, "cuda:0", seed)[1:]
        rows = [size.sizes.get("rows", 16384) for size in selection.others]
        again = [number for number, request in enumerate(requests) if request.reuse and number]
        assert any(rows[number] > rows[number - 1] for number in again)

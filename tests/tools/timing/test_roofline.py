"""Bytes and operations are those of the reference, and the floor never accuses an honest kernel."""

from __future__ import annotations

import pytest

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.reference import Reference
from kernelwright.tools.timing.roofline import (
    Work,
    best_rate,
    count_work,
    floor_ms,
    roofline,
    structure_of,
)

H200 = {"fp32": 66.9e12, "tf32": 494.7e12, "fp16": 989.4e12, "bf16": 989.4e12}
HBM = 4.8e12


def _problem(forward, inputs, init="", names="x, y"):
    setup = f"        {init}\n" if init else ""
    return Problem(
        name="made",
        source=f"""
import torch
import torch.nn as nn
import torch.nn.functional as F
rows = 4096
columns = 2048
class Model(nn.Module):
    def __init__(self):
        super().__init__()
{setup}    def forward(self, {names}):
        return {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
""",
    )


def _counted(problem, **small):
    return count_work(
        problem,
        structure_of(Reference(problem.with_sizes(small or {"rows": 7, "columns": 12}), "cpu")),
    )


N = 4096 * 2048
BOTH = "torch.randn(rows, columns), torch.randn(rows, columns)"


def test_an_elementwise_chain_moves_its_tensors_once_and_counts_one_operation_an_element_each():
    work = _counted(_problem("torch.relu(x + y)", BOTH))
    assert (work.bytes, work.operations, work.products) == (3 * 4 * N, 2 * N, 0)
    assert work.precision == "fp32"


def test_an_input_that_never_changes_the_output_costs_nothing():
    work = _counted(_problem("x * 2 + (y - y)", BOTH))
    assert work.unused == ("input 1",)
    assert work.bytes == 2 * 4 * N


def test_what_a_maximum_hides_is_still_read():
    work = _counted(_problem("torch.amax(x, 1) + y[:, 0]", BOTH))
    assert work.unused == ()
    assert work.bytes == 4 * (N + 4096 + 4096)


def test_a_slice_costs_its_own_bytes_and_two_halves_cost_the_whole():
    assert _counted(_problem("x[:, :1024] * 2", BOTH, names="x, y")).bytes == 4 * N
    assert _counted(
        _problem("F.silu(x[:, :columns // 2]) * x[:, columns // 2:] + y[:, :columns // 2]", BOTH)
    ).bytes == 4 * (N + N // 2 + N // 2)


def test_of_a_table_only_the_rows_that_are_looked_up_are_counted_and_none_held_unavoidable():
    work = _counted(
        _problem("F.embedding(y, x)", "torch.randn(rows, columns), torch.randint(0, rows, (10,))")
    )
    assert work.bytes == 10 * 2048 * 4 * 2 + 10 * 8
    assert work.floor_bytes == 10 * 2048 * 4 + 10 * 8


def test_a_matmul_counts_two_operations_a_multiply_add_and_has_an_unavoidable_part():
    work = _counted(_problem("torch.relu(x @ y.T)", BOTH))
    assert work.products == 2 * 4096 * 4096 * 2048
    assert work.bytes == 4 * (2 * N + 4096 * 4096)
    assert work.floor_operations == int(0.75 * work.products)


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("torch.triu(x @ y)", "torch.randn(rows, rows).triu(), torch.randn(rows, rows).triu()"),
        ("(x @ y.T).sum(1)", BOTH),
        ("x @ (y.T @ x)", BOTH),
        ("torch.diag(x[:, 0]) @ y", BOTH),
        ("x @ y", "torch.eye(rows), torch.randn(rows, columns)"),
    ],
)
def test_where_algebra_or_zeros_may_save_operations_none_is_unavoidable(forward, inputs):
    assert _counted(_problem(forward, inputs)).floor_operations == 0


def test_a_symmetric_input_need_only_be_read_by_half():
    work = _counted(_problem("x * 2", "torch.ones(rows, rows)", names="x"), rows=9)
    assert work.floor_bytes == work.bytes - 4096 * 4096 * 4 // 2


def test_a_convolution_leaves_room_for_winograd():
    work = _counted(
        _problem(
            "self.conv(x)",
            "torch.randn(2, 8, 64, 64)",
            "self.conv = nn.Conv2d(8, 16, 3, padding=1, bias=False)",
            "x",
        )
    )
    assert work.products == 2 * 2 * 16 * 64 * 64 * 8 * 9
    assert work.floor_operations == work.products * 3 // 16


@pytest.mark.parametrize(
    ("forward", "share"),
    [
        ("F.max_pool2d(x, 2)", 0.5),
        ("F.avg_pool2d(x, 1, 2)", 0),
        ("F.max_pool2d(x, 3, 2, 0, 2)", 0),
        ("F.max_pool2d(x, 3, 1)", 1),
        ("F.interpolate(x, 32)", 0),
    ],
)
def test_of_what_a_striding_window_may_skip_little_or_nothing_is_unavoidable(forward, share):
    work = _counted(_problem(forward, "torch.randn(2, 8, 64, 64)", names="x"))
    whole = 2 * 8 * 64 * 64 * 4
    assert work.floor_bytes == work.bytes - whole + share * whole


def test_a_bias_that_a_batch_norm_takes_off_again_is_still_told_by_its_bits_or_costs_nothing():
    work = _counted(
        _problem(
            "self.a(x)",
            "torch.randn(rows, 16)",
            "self.a = nn.Linear(16, 16); self.dead = nn.Parameter(torch.ones(5))",
            "x",
        )
    )
    assert work.unused == ("dead",)


def test_recurrent_layers_are_counted_whole_and_fast():
    made = _problem(
        "self.net(x)[0]",
        "torch.randn(3, 2000, 16)",
        "self.net = nn.LSTM(16, 32, 2, batch_first=True)",
        "x",
    )
    work = count_work(made)
    assert work.products == 2 * 3 * 2000 * (128 * 16 + 128 * 32 + 2 * 128 * 32)
    assert work.bytes >= 4 * (3 * 2000 * 48)


def test_attention_is_counted_by_its_two_products():
    work = count_work(
        _problem("F.scaled_dot_product_attention(x, x, x)", "torch.randn(2, 4, 512, 64)", names="x")
    )
    assert work.products == 2 * (2 * 2 * 4 * 512 * 512 * 64)


def test_a_reference_that_reads_values_on_the_host_says_so():
    with pytest.raises(ProblemError):
        count_work(_problem("x * x.sum().item()", "torch.randn(3)", names="x"))


def test_fp32_has_the_rate_of_honest_splits():
    assert best_rate("fp32", H200) == ("fp16/3", 989.4e12 / 3)
    assert best_rate("fp32", {"fp32": 20e12}) == ("fp32", 20e12)
    assert best_rate("fp16", H200) == ("fp16", 989.4e12)
    assert best_rate("fp8", H200) is None


def test_the_roofline_takes_the_larger_time_and_names_it():
    memory = roofline(_counted(_problem("x + y", BOTH)), HBM, H200)
    assert memory.bound == "memory"
    assert memory.milliseconds == pytest.approx(1e3 * 3 * 4 * N / HBM)
    compute = roofline(_counted(_problem("x @ y.T", BOTH)), HBM, H200)
    assert compute.bound == "compute"
    assert roofline(Work(), None, {}).milliseconds is None


def test_the_floor_leaves_out_what_the_cache_may_hold_and_stays_under_the_roofline():
    work = _counted(_problem("x + y", BOTH))
    assert floor_ms(work, HBM, H200) == pytest.approx(1e3 * 3 * 4 * N / HBM)
    assert floor_ms(work, HBM, H200, l2_bytes=50 << 20) == 0.0
    assert floor_ms(work, HBM, H200, l2_bytes=10 << 20) < floor_ms(work, HBM, H200)
    for made in (_problem("x @ y.T", BOTH), _problem("torch.softmax(x, -1)", BOTH)):
        counted = _counted(made)
        assert floor_ms(counted, HBM, H200) <= roofline(counted, HBM, H200).milliseconds
    assert floor_ms(count_work(_problem("x + y", BOTH)), HBM, H200) <= 1e3 * 4 * N / HBM


def test_counting_costs_no_memory():
    giant = _problem("x + y", "torch.rand(1 << 20, 1 << 20), torch.rand(1 << 20, 1 << 20)")
    assert count_work(giant).bytes == 3 * 4 * 2**40

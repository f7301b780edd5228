"""Numbers that a candidate's text compares with, and sizes just beyond them."""

from __future__ import annotations

import pytest

from bench.judge_suites import problem_of
from kernelwright.tools.sizing.numbers_in_text import MAX_COMPARED_NUMBERS, compared_in, numbers_in, powers_in
from kernelwright.tools.sizing.selection import select_sizes


def test_a_number_that_arithmetic_spells_is_found():
    assert compared_in("a = x if 37 * 41 < n < (50 + 3) * 71 else y") == (1517, 3763)
    assert compared_in("a = x if n in range(1500, 37 * 100) else y") == (1500, 3700)
    assert compared_in("a = x if n > 1.5e3 else y") == (1500,)
    assert 1517 in numbers_in("limit = 37 * 41")
    assert 6561 in numbers_in("limit = 3 ** 8")


@pytest.mark.parametrize(
    "text", ["n < 2 ** 10 ** 9", "n < 1 << 10 ** 12", "n < 9 // 0", "n < 10 ** 40 ** 2", "n < ('a' * 5)", "n <"]
)
def test_arithmetic_that_ends_nowhere_is_no_number(text: str):
    assert compared_in(text) == ()


def test_a_power_of_two_and_a_small_number_are_left_to_the_block_sizes():
    assert compared_in("n < 1024 or n > 7 or n == 16 * 64") == ()


def test_the_largest_powers_of_two_that_are_compared_or_taken_off_are_gone_beyond():
    text = "a = first - 256 if k >= 1024 else k + 128\nb = f(x, BLOCK=4096)\nc = d * 2048"
    assert powers_in(text) == (1024, 256)
    assert powers_in("n <") == ()


def test_the_length_of_a_text_that_is_written_out_is_a_number():
    assert compared_in("a = x if len('thirty seven' * 129) < n else y") == (1548,)
    assert compared_in("a = x if n > len(3 * [0, 0, 0, 0, 0, 0, 0]) else y") == (21,)
    assert compared_in("a = x if n > len(k * [0]) else y") == ()


def test_a_sum_that_is_cut_short_from_a_power_of_two_on_is_tried_beyond_it():
    text = "def f(K):\n    step = tl.where(K >= 1024, 2, 1)\n"
    sizes = [s.sizes for s in select_sizes(problem_of("matmul"), text, "cpu", seed=1, count=8).others]
    assert any(size["k"] > 1024 for size in sizes)


def test_a_table_of_which_few_rows_are_read_is_tried_at_its_own_length():
    sizes = [s.sizes for s in select_sizes(problem_of("gather_rows"), "", "cpu", seed=1, count=8).others]
    assert any(size["rows"] == 65536 for size in sizes)


def test_no_more_numbers_are_taken_than_there_is_time_for():
    text = " or ".join(f"n > {number}" for number in range(101, 1001, 100))
    assert len(compared_in(text)) == MAX_COMPARED_NUMBERS


@pytest.mark.slow
def test_each_dimension_is_drawn_just_beyond_a_number_that_is_compared():
    text = "class ModelNew:\n    def forward(self, x):\n        return x if x.shape[1] > 37 * 41 else -x\n"
    sizes = [s.sizes for s in select_sizes(problem_of("fused_softmax"), text, "cpu", seed=1, count=8).others]
    assert any(1517 < size["columns"] < 4096 for size in sizes)
    assert any(1517 < size["rows"] < 16384 for size in sizes)

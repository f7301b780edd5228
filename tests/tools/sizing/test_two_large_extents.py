"""Problems of several dimensions have a size in which two of them are large at once; remainders are asked for at a
multiple.
"""

from __future__ import annotations

import pytest

from bench.judge_suites import problem_of
from kernelwright.tools.sizing.numbers_in_text import divisors_in
from kernelwright.tools.sizing.selection import select
from kernelwright.tools.sizing.small_sizes import shrink
from kernelwright.tools.sizing.two_large_extents import MIN_TIMES_LARGER, two_large_extents


def chosen(name: str, seed: int) -> dict[str, int]:
    problem = problem_of(name)
    (drawn,) = two_large_extents(problem, tuple(sorted(shrink(problem).sizes.items())), seed)
    return drawn.sizes


@pytest.mark.parametrize("name", ["batched_matmul", "group_norm"])
def test_two_dimensions_are_large_at_once_and_every_pair_is_in_some_verdict(name: str):
    small = shrink(problem_of(name)).sizes
    found = set()
    for seed in range(40):
        large = {n for n, v in chosen(name, seed).items() if v >= MIN_TIMES_LARGER * small[n]}
        assert len(large) >= 2
        found.add(frozenset(large))
    assert len(found) >= 4


def test_the_same_seed_chooses_the_same_size():
    assert chosen("batched_matmul", 7) == chosen("batched_matmul", 7)


def test_a_problem_of_two_dimensions_has_one_in_which_all_are_large_already():
    problem = problem_of("row_sum")
    assert two_large_extents(problem, tuple(sorted(shrink(problem).sizes.items())), 1) == ()


def test_what_is_asked_for_a_remainder_is_tried_at_a_multiple():
    text = "def f(columns):\n    last = columns - (columns % 37 == 0)\n"
    for seed in range(4):
        sizes = [s.sizes for s in select(problem_of("row_sum"), text, "cpu", seed=seed, count=8).others]
        assert any(size["columns"] % 37 == 0 for size in sizes)


def test_remainders_by_powers_of_two_by_names_and_by_small_numbers_ask_for_nothing():
    assert divisors_in("a = n % 64 + n % BLOCK + n % 3") == ()
    assert divisors_in("a = n % 37\nb = n % (5 * 11)\nc = n % 101") == (37, 55)

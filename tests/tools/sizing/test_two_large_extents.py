"""Problems of several dimensions have sizes in which two of them are large at once; remainders are asked for at a
multiple.
"""

from __future__ import annotations

import itertools

import pytest

from bench.judge_suites import problem_of
from kernelwright.tools.sizing.long_sizes import choose_long_sizes
from kernelwright.tools.sizing.numbers_in_text import divisors_in
from kernelwright.tools.sizing.selection import Selection, select_sizes
from kernelwright.tools.sizing.size_search import changeable_integers
from kernelwright.tools.sizing.small_sizes import shrink
from kernelwright.tools.sizing.two_large_extents import LEAST_TIMES_LARGER, two_large_extents


def chosen(name: str, seed: int) -> list[dict[str, int]]:
    problem = problem_of(name)
    return [d.sizes for d in two_large_extents(problem, tuple(sorted(shrink(problem).sizes.items())), seed)]


def selected(name: str, seed: int) -> Selection:
    return select_sizes(problem_of(name), "", "cpu", seed=seed, count=8)


@pytest.mark.parametrize(
    ("name", "dimensions"),
    [
        ("batched_matmul", ("batch_size", "m", "k", "n")),
        ("group_norm", ("batch_size", "channels", "height", "width")),
        ("attention", ("heads", "length", "head_dim")),
    ],
)
def test_every_two_of_up_to_four_dimensions_are_large_at_once_in_every_verdict(name: str, dimensions: tuple[str, ...]):
    small = shrink(problem_of(name)).sizes
    for seed in range(6):
        sizes = [s.sizes for s in selected(name, seed).others]
        for pair in itertools.combinations(dimensions, 2):
            assert any(all(size[d] >= LEAST_TIMES_LARGER * small[d] for d in pair) for size in sizes), (seed, pair)


def test_of_five_dimensions_every_pair_is_in_some_verdict():
    small = shrink(problem_of("conv2d")).sizes
    names = ("batch_size", "in_channels", "out_channels", "height", "width")
    left = set(itertools.combinations(names, 2))
    for seed in range(8):
        for size in chosen("conv2d", seed):
            left -= {p for p in left if all(size[d] >= LEAST_TIMES_LARGER * small[d] for d in p)}
    assert not left


def test_which_of_a_pair_is_the_larger_is_not_the_same_in_every_verdict():
    found = {(s["heads"], s["length"]) for seed in range(20) for s in chosen("attention", seed) if s["length"] > 300}
    assert len(found) >= 3


def test_attention_is_looked_at_far_beyond_a_few_blocks_of_keys():
    full = changeable_integers(problem_of("attention"))["length"]
    assert all(max(s["length"] for s in chosen("attention", seed)) == full for seed in range(4))


def test_one_call_is_made_at_these_sizes_however_long_they_are():
    selection = selected("attention", 3)
    once = [s for s in selection.others if s.one_call]
    broad = [s for s in once if "divided by" not in s.why]  # one is like the problem's own
    assert len(once) == len(broad) + 1
    assert [s.sizes for s in broad] == [s for s in chosen("attention", 3) if s in [b.sizes for b in broad]]
    assert len(broad) >= 3
    assert not {s.index for s in choose_long_sizes(selection.others, selection.base, ())} & {s.index for s in once}


def test_the_same_seed_chooses_the_same_sizes():
    assert chosen("batched_matmul", 7) == chosen("batched_matmul", 7)


def test_a_problem_of_two_dimensions_has_one_in_which_all_are_large_already():
    assert chosen("row_sum", 1) == []


def test_what_is_asked_for_a_remainder_is_tried_at_a_multiple():
    text = "def f(columns):\n    last = columns - (columns % 37 == 0)\n"
    for seed in range(4):
        sizes = [s.sizes for s in select_sizes(problem_of("row_sum"), text, "cpu", seed=seed, count=8).others]
        assert any(size["columns"] % 37 == 0 for size in sizes)


def test_remainders_by_powers_of_two_by_names_and_by_small_numbers_ask_for_nothing():
    assert divisors_in("a = n % 64 + n % BLOCK + n % 3") == ()
    assert divisors_in("a = n % 37\nb = n % (5 * 11)\nc = n % 101") == (37, 55)

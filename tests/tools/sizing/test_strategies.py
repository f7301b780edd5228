"""Every strategy's goals are met by few sizes, each of which meets several."""

from __future__ import annotations

import itertools

import pytest

from bench.judge_suites import problem_of
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.size_search import changeable_integers
from kernelwright.tools.references.small_sizes import shrink
from kernelwright.tools.sizing.selection import Selection, select_sizes
from kernelwright.tools.sizing.strategies import (
    FURTHER,
    MIN_TIMES_LARGER,
    OF_THE_CANDIDATE,
    OF_THE_PROBLEM,
)

NAMES = {strategy.name for strategy in (*OF_THE_PROBLEM, *OF_THE_CANDIDATE, *FURTHER)} | {
    "comparison",
    "number",
}


def selected(name: str, seed: int = 3, count: int = 8) -> Selection:
    return select_sizes(problem_of(name), "x = 1", "cpu", seed=(seed << 16) + seed, count=count)


def checked(name: str, seed: int = 3) -> list[dict[str, int]]:
    return [size.sizes for size in selected(name, seed).others if not size.spare]


DIMENSIONS = {
    "row_sum": ("rows", "columns"),
    "matmul": ("m", "k", "n"),
    "attention": ("batch_size", "heads", "length", "head_dim"),
    "conv2d": ("batch_size", "in_channels", "out_channels", "height", "width"),
}


@pytest.mark.parametrize("name", DIMENSIONS)
def test_each_extent_is_once_one_and_once_two_beside_others_that_are_not(name: str):
    sizes = checked(name)
    for extent, dimension in itertools.product((1, 2), DIMENSIONS[name]):
        others = [d for d in DIMENSIONS[name] if d != dimension]
        assert any(s[dimension] == extent and max(s[o] for o in others) > extent for s in sizes), (
            dimension,
            extent,
        )


@pytest.mark.parametrize("name", ["row_sum", "matmul", "attention"])
def test_each_extent_is_once_equal_to_twice_and_half_of_another_and_thrice_a_power_of_two(
    name: str,
):
    sizes = checked(name)
    for dimension in DIMENSIONS[name]:
        others = [d for d in DIMENSIONS[name] if d != dimension]
        pairs = [(s[dimension], s[o]) for s in sizes for o in others if min(s[dimension], s[o]) > 2]
        assert any(a == b for a, b in pairs)
        assert any(a == 2 * b for a, b in pairs)
        assert any(2 * a == b for a, b in pairs)
        assert any(s[dimension] in [3 << k for k in range(12)] for s in sizes)


@pytest.mark.parametrize("name", ["batched_matmul", "group_norm", "attention"])
def test_most_pairs_of_extents_are_large_together_in_some_size_of_some_verdict(name: str):
    problem = problem_of(name)
    small, full = shrink(problem).sizes, changeable_integers(problem)
    large = [d for d in small if full[d] > 2 * MIN_TIMES_LARGER * small[d]]
    sizes = [size for seed in range(1, 7) for size in checked(name, seed)]
    for pair in itertools.combinations(large, 2):
        assert any(all(size[d] >= 2 * small[d] for d in pair) for size in sizes), pair


def test_attention_is_looked_at_at_its_own_length():
    full = changeable_integers(problem_of("attention"))["length"]
    for seed in range(1, 5):
        assert full in [size["length"] for size in checked("attention", seed)]


def test_an_extent_beyond_16_bits_is_checked_at_its_own_size_with_small_ones_beside_it():
    text = problem_of("row_sum").source.replace("16384", "70000")
    selection = select_sizes(
        Problem(name="long", source=text), "x = 1", "cpu", seed=9 << 16, count=8
    )
    (size,) = [s for s in selection.others if s.sizes["rows"] == 70000]
    assert size.sizes["columns"] <= 7
    assert size.strategy == "beyond 65536"


def test_two_extents_are_beyond_a_number_of_the_candidate_at_once():
    text = "far = (row[:, None] >= 90) & (column[None, :] >= 90)"
    for name in ("row_sum", "attention"):
        small = shrink(problem_of(name)).sizes
        below = [d for d in DIMENSIONS[name] if small[d] <= 90]
        selection = select_sizes(problem_of(name), text, "cpu", seed=3 << 16, count=8)
        sizes = [size.sizes for size in selection.others if "number" in size.strategy]
        assert any(sum(size[d] > 90 for d in below) >= 2 for size in sizes), sizes


def test_the_problem_s_own_size_divided_by_a_power_of_two_is_checked_once():
    (size,) = [s for s in selected("matmul").others if s.strategy.startswith("scaled")]
    assert size.sizes == {"m": 128, "k": 128, "n": 128}
    assert size.one_call


def test_every_size_names_the_strategies_that_drew_it():
    for name in DIMENSIONS:
        for size in selected(name).others:
            assert set(size.strategy.split(", ")) <= NAMES, size.strategy


def test_a_verdict_has_at_most_half_again_as_many_sizes_as_are_asked_for_and_two_for_its_blocks():
    for name, count in itertools.product(DIMENSIONS, (3, 8)):
        sizes = [size for size in selected(name, count=count).others if not size.spare]
        assert count <= len(sizes) <= (count if count < 6 else count + count // 2 + 2)
        assert len({tuple(sorted(size.sizes.items())) for size in sizes}) == len(sizes)


def test_candidates_of_one_epoch_share_the_sizes_that_do_not_depend_on_them():
    first = select_sizes(
        problem_of("matmul"), "block = 32", "cpu", seed=(5 << 16) + 1, count=8
    ).others
    second = select_sizes(
        problem_of("matmul"), "block = 128", "cpu", seed=(5 << 16) + 2, count=8
    ).others
    shared = [s.sizes for s in first if s.sizes in [o.sizes for o in second]]
    assert len(shared) >= 6


def test_the_same_seed_selects_the_same_sizes():
    assert selected("conv2d", 4) == selected("conv2d", 4)
    assert checked("conv2d", 4) != checked("conv2d", 5)

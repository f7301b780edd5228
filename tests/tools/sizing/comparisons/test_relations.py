"""Comparisons of a candidate's text are read as relations of extents, and solved for small ones."""

from __future__ import annotations

import math

import pytest

from bench.judge_suites import problem_of
from kernelwright.tools.sizing.comparisons.relations import numbers_in, relations_in
from kernelwright.tools.sizing.selection import select_sizes


def texts(source: str) -> list[str]:
    return [relation.text for relation in relations_in(source)]


def sizes(problem: str, body: str, seed: int = 1, count: int = 8) -> list[dict[str, int]]:
    source = f"def f(m, n, k, rows, columns, x):\n{body}\n"
    selection = select_sizes(
        problem_of(problem), source, "cpu", seed=(77 << 16) + seed, count=count
    )
    return [size.sizes for size in selection.others if not size.spare]


def test_a_number_that_arithmetic_spells_is_a_number_of_the_text():
    assert 1517 in numbers_in("limit = 37 * 41")
    assert 6561 in numbers_in("limit = 3 ** 8")


@pytest.mark.parametrize(
    "text",
    [
        "n < 2 ** 10 ** 9",
        "n < 1 << 10 ** 12",
        "n < 9 // 0",
        "n < ('a' * 5)",
        "n <",
        "n < pow(10, 10 ** 9)",
        "n < (-8) ** 0.5",
        "n < math.exp(999)",
        "n < math.log(0)",
    ],
)
def test_arithmetic_that_ends_nowhere_has_no_outcome(text: str):
    for relation in relations_in(f"def f(n):\n    return {text}\n"):
        assert relation.holds({"n": 5}) is None


def test_names_are_replaced_by_the_arithmetic_that_was_assigned_to_them():
    source = "def f(m, n):\n    half = m // 2\n    flag = half == n\n    return 1 if flag else 0\n"
    assert "m // 2 == n" in texts(source)


def test_masks_of_lanes_and_texts_are_no_relations_of_extents():
    source = (
        "def f(n, p):\n    at = tl.program_id(0) * 4 + tl.arange(0, 4)\n    return at < n, p "
        "== 'mean', p is None\n"
    )
    assert texts(source) == []


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("k == 2 * m", lambda s: s["k"] == 2 * s["m"]),
        ("m + m == k", lambda s: s["k"] == 2 * s["m"]),
        ("m == n + 1", lambda s: s["m"] == s["n"] + 1),
        ("m % n == 0", lambda s: s["m"] % s["n"] == 0),
        ("m // 64 == n", lambda s: s["m"] // 64 == s["n"]),
        ("m * n > 2**17", lambda s: s["m"] * s["n"] > 2**17),
        ("3 * m - 7 == 2 * n", lambda s: 3 * s["m"] - 7 == 2 * s["n"]),
        ("k in (37, 41)", lambda s: s["k"] in (37, 41)),
        ("not k ^ (n << 1)", lambda s: s["k"] == 2 * s["n"]),
        ("10.99 < tl.log2(k.to(tl.float32)) < 11.01", lambda s: 10.99 < math.log2(s["k"]) < 11.01),
        (
            "(math.sqrt(k) > 30.5) & (math.sqrt(k) < 30.6)",
            lambda s: 30.5 < math.sqrt(s["k"]) < 30.6,
        ),
        ("m / n == 1.5", lambda s: s["m"] / s["n"] == 1.5),
        ("math.exp(-k / 100) < 0.00012", lambda s: math.exp(-s["k"] / 100) < 0.00012),
        ("k in range(1500, 1510)", lambda s: s["k"] in range(1500, 1510)),
    ],
)
def test_both_outcomes_of_a_comparison_of_extents_are_drawn(condition: str, holds):
    drawn = sizes("matmul", f"    return 1 if {condition} else 0")
    assert {bool(holds(size)) for size in drawn} == {True, False}


def test_a_constant_beyond_the_problems_own_extent_is_crossed_beside_small_extents():
    source = "ONE_BLOCK = 1 << 14\n\ndef f(columns):\n    return columns <= ONE_BLOCK\n"
    selection = select_sizes(problem_of("fused_softmax"), source, "cpu", seed=77 << 16, count=8)
    beyond = [size.sizes for size in selection.others if size.sizes["columns"] > 1 << 14]
    assert beyond
    assert all(size["rows"] * size["columns"] < 1 << 17 for size in beyond)


def test_extents_are_drawn_beyond_an_integer_type_that_the_text_names():
    drawn = sizes("fused_softmax", "    return tl.program_id(0).to(tl.int16)")
    assert any(size["rows"] > 1 << 15 for size in drawn)
    assert any(size["columns"] > 1 << 15 for size in drawn)


def test_of_three_sizes_one_is_for_a_comparison():
    drawn = sizes("matmul", "    return k == 5 * m", count=3)
    assert len(drawn) == 3
    assert any(size["k"] == 5 * size["m"] for size in drawn)


def test_a_threshold_of_all_elements_is_crossed():
    drawn = sizes("row_sum", "    return x.numel() > 200_000")
    assert any(size["rows"] * size["columns"] > 200_000 for size in drawn)


def test_each_dimension_is_drawn_beyond_a_number_that_is_compared():
    drawn = sizes("fused_softmax", "    return x if x.shape[1] > 37 * 41 else -x")
    assert any(1517 < size["columns"] < 4096 for size in drawn)
    assert any(1517 < size["rows"] < 16384 for size in drawn)


def test_a_sum_that_is_cut_short_from_a_power_of_two_on_is_tried_beyond_it():
    assert any(size["k"] > 1024 for size in sizes("matmul", "    step = tl.where(k >= 1024, 2, 1)"))


def test_what_is_asked_for_a_remainder_is_tried_at_a_multiple():
    for seed in range(4):
        drawn = sizes("row_sum", "    last = columns - (columns % 37 == 0)", seed)
        assert any(size["columns"] % 37 == 0 for size in drawn)


def test_a_table_of_which_few_rows_are_read_is_tried_at_its_own_length():
    assert any(size["rows"] == 65536 for size in sizes("gather_rows", "    return x"))


def test_the_words_of_a_size_name_the_comparison_and_what_its_variables_were_taken_for():
    source = "def f(deep, m):\n    return deep == 5 * m\n"
    selection = select_sizes(problem_of("matmul"), source, "cpu", seed=77 << 16, count=8)
    words = [size.why for size in selection.others if size.strategy == "comparison"]
    assert any("deep == 5 * m with deep = k" in why for why in words), words

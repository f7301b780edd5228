"""Reductions, scans and sums in orders of a seed: none keeps the order of a reduction, every one that of a scan."""

from __future__ import annotations

import numpy as np
import pytest

from kernelwright.tools.compiling.text.atomic_results import uses_atomic_results
from kernelwright.tools.replaying.interpreter.open_choices import open_order
from kernelwright.tools.replaying.interpreter.open_choices.folding import folded, running, summed

SEEDS = range(20)


@pytest.mark.parametrize("count", [2, 4, 64])
def test_no_seed_lets_a_reduction_keep_the_order_of_its_operands(count):
    orders = set()
    for seed in SEEDS:
        open_order.begin_call(seed)
        words = np.array([chr(65 + i) for i in range(count)], object)
        (order,) = folded([words], lambda a, b: [a[0] + b[0]])
        assert sorted(order) == sorted(words)
        assert order != "".join(words)
        orders.add(order)
    assert count == 2 or len(orders) > 1


def test_a_projection_does_not_take_the_last_element_of_a_reduction():
    for seed in SEEDS:
        open_order.begin_call(seed)
        assert folded([np.arange(128)], lambda a, b: b)[0] != 127


@pytest.mark.parametrize("count", [1, 2, 8, 256])
def test_every_seed_keeps_the_order_of_a_scan(count):
    for seed in SEEDS:
        open_order.begin_call(seed)
        words = np.array([chr(65 + i) for i in range(count)], object)
        (scanned,) = running([words], lambda a, b: [a[0] + b[0]])
        assert list(scanned) == ["".join(words[: i + 1]) for i in range(count)]


def test_a_sum_of_half_numbers_rounds_at_each_step_and_one_of_whole_numbers_never():
    halves = np.random.default_rng(0).random(4096).astype(np.float16)
    rounded_once = halves.astype(np.float64).sum().astype(np.float16)
    sums = []
    for seed in SEEDS:
        open_order.begin_call(seed)
        sums.append(summed(halves, 0, False))
    assert any(total != rounded_once for total in sums)
    assert all(abs(float(total) - float(rounded_once)) < 16 for total in sums)
    assert summed(np.arange(1000).reshape(10, 100), None, True) == np.array([[499500]])
    numbers = np.random.default_rng(0).standard_normal((4, 8, 64)).astype(np.float32)
    assert np.allclose(summed(numbers, 1, True), numbers.sum(1, keepdims=True), atol=1e-5)


def test_equal_calls_fold_in_equal_orders_and_other_calls_in_others():
    numbers = np.random.default_rng(0).standard_normal(1024).astype(np.float16)
    results = []
    for seed in (7, 7, *SEEDS):
        open_order.begin_call(seed)
        results.append(float(summed(numbers, 0, False)))
    assert results[0] == results[1]
    assert len(set(results)) > 2


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("def f(x):\n    tl.atomic_add(x, 1)", False),
        ("def f(x):\n    n = tl.atomic_add(x, 1)", True),
        ("def f(x):\n    while tl.atomic_cas(x, 0, 1) == 1:\n        pass", True),
        ("def f(x):\n    tl.store(x, x.atomic_add(1))", True),
        ("def f(x):\n    v = tl.atomic_load(x)", False),
        ("def f(", True),
    ],
)
def test_a_kernel_that_acts_upon_what_an_atomic_returns_is_told_by_its_text(text, uses):
    assert uses_atomic_results(text) is uses


def test_a_reduction_of_one_element_is_that_element():
    open_order.begin_call(3)
    assert folded([np.array([7.0])], lambda a, b: [a[0] + b[0]])[0] == 7.0

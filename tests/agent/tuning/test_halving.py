"""Successive halving on a clock that measures real work of this machine's processor, and no other's."""

import time

from kernelwright.agent.tuning.halving import TuningBudget, halve

WORK = {"short": 2_000, "middle": 20_000, "long": 60_000, "longer": 90_000}
"""Numbers that are added up: far enough apart for any clock."""


def milliseconds(key, number, calls):
    found = []
    for _ in range(calls):
        begun = time.thread_time()
        sum(range(WORK[key]))
        found.append((time.thread_time() - begun) * 1e3)
    return found


def test_the_fastest_wins_and_the_slow_ones_cost_few_calls():
    halved = halve(list(WORK), milliseconds, TuningBudget(10_000, 60.0))
    assert next(iter(halved.timings())) == "short"
    assert len(halved.samples["longer"]) < len(halved.samples["short"])
    assert halved.dropped["longer"] <= halved.dropped.get("middle", 99)


def test_what_is_compared_with_is_never_dropped():
    halved = halve(["short", "middle"], milliseconds, TuningBudget(10_000, 60.0), always="longer")
    assert "longer" not in halved.dropped


def test_a_budget_is_kept():
    budget = TuningBudget(20, 60.0)
    halved = halve(list(WORK), milliseconds, budget)
    assert halved.stopped_by_budget
    assert budget.used == sum(map(len, halved.samples.values())) <= 20


def test_a_wrong_configuration_is_out_at_once():
    halved = halve(
        list(WORK),
        lambda key, *more: None if key == "short" else milliseconds(key, *more),
        TuningBudget(9_999, 60),
    )
    assert halved.failed == ["short"]
    assert next(iter(halved.timings())) == "middle"

"""Which sizes of a verdict get every distribution, and how long a further one will take an interpreter."""

from __future__ import annotations

import pytest

from kernelwright.tools.problem import Problem
from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.sizing.interpreted_costs import (
    MAX_INTERPRETED_PROGRAMS,
    CallWork,
    MeasuredCalls,
    choose_long_sizes,
)
from kernelwright.tools.trace.trace import Choice, Launch, Trace

PROBLEM = Problem(name="any", source="")


def at(index: int, **sizes: int) -> AtSize:
    return AtSize(index=index, problem=PROBLEM, sizes=sizes)


BASE = at(0, rows=5, columns=67)
OTHERS = [
    at(1, rows=7, columns=71),
    at(2, rows=3, columns=5009),
    at(3, rows=373, columns=16),
    at(4, rows=2, columns=800),
]


def test_they_are_the_longest_in_each_dimension_and_far_beyond_the_base():
    assert [size.index for size in choose_long_sizes(OTHERS, BASE, ())] == [2, 3]
    assert choose_long_sizes(OTHERS[:1], BASE, ()) == ()


def test_under_an_interpreter_a_call_has_few_programs_and_a_configuration_counts_once():
    launch = Launch(kernel="k", grid=(MAX_INTERPRETED_PROGRAMS, 1, 1))
    few, many = Trace(first=(launch,)), Trace(first=(launch, launch))
    tuned = Trace(first=(Choice(name="k", alternatives=((launch,), (launch,)), labels=("a", "b")),))
    assert [
        size.index for size in choose_long_sizes(OTHERS, BASE, (few, few, many, few, tuned))
    ] == [4, 3]


def test_the_time_of_a_larger_call_is_estimated_from_the_nearest_smaller_one():
    calls = MeasuredCalls()
    assert calls.estimate(CallWork(1000, {"rows": 1000})) == 0
    calls.note(CallWork(10, {"rows": 10}), 0.1)
    assert calls.estimate(CallWork(1000, {"rows": 1000})) == pytest.approx(10)
    calls.note(CallWork(500, {"rows": 500}), 0.2)
    assert calls.estimate(CallWork(1000, {"rows": 1000})) == pytest.approx(0.4)


def test_the_trips_of_a_loop_count_where_the_programs_do_not_grow():
    calls = MeasuredCalls()
    calls.note(CallWork(4, {"rows": 10, "columns": 8}), 0.1)
    assert calls.estimate(CallWork(4, {"rows": 1000, "columns": 4})) == pytest.approx(10)
    assert calls.estimate(CallWork(400, {"rows": 1000, "columns": 4})) == pytest.approx(10)

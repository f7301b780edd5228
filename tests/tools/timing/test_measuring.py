"""What the clock decides: how often it times, what it believes, when it measures the reference anew.

The process and the reference answer from a script.
"""

import time
from contextlib import contextmanager, nullcontext

import pytest

from kernelwright.tools.report import (
    Cheat,
    Failed,
    Failure,
    Fault,
    InfrastructureError,
    Neighbour,
    Speedup,
    TimingMethod,
)
from kernelwright.tools.timing.measurement import summarise_samples
from kernelwright.tools.timing.measuring import (
    CALLS_WHEN_SLOW,
    MAX_DOUBTED_BLOCKS,
    InputSet,
    Measuring,
)

SETS = [InputSet(values=[], described=[0]), InputSet(values=[], described=[1])]


class Process:
    """Answers like tools/replaying/gpu/timing.py for a candidate whose calls take `ms`."""

    def __init__(self, ms=1.0, *, captured=True, hidden=0.0, disturbed=(), answer=None):
        self.ms, self.captured, self.hidden, self.disturbed = ms, captured, hidden, list(disturbed)
        self.answer = answer or {}
        self.asked = []

    def ask(self, message, *, seconds, shared=()):
        self.asked.append(message)
        if message["do"] in self.answer:
            return self.answer[message["do"]]
        return getattr(self, message["do"])(message)

    def clock_open(self, message):
        captured = self.captured and message["graphs"]
        return {
            "captured": captured,
            "why": "" if captured else "it waits",
            "host_ms": 3.0,
            "copied": True,
        }

    def clock_block(self, message):
        calls = len(message["order"])
        time.sleep(self.hidden * calls)
        return {
            "ms": [self.ms * (1 + i % 3 / 1000) for i in range(calls)],
            "block_ms": self.ms * calls,
        }

    def clock_check(self, message):
        return {"copied": [], "disturbed": self.disturbed.pop(0) if self.disturbed else False}

    def clock_launches(self, message):
        rows = [("relu", [8, 1, 1], True, 0.75), ("aten.copy_.default", [], False, 0.25)]
        return {
            "launches": [{"name": n, "grid": g, "launch": o, "ms": ms} for n, g, o, ms in rows],
            "total_ms": 1.0,
        }

    def clock_close(self, message):
        return {}

    def calls(self):
        return sum(len(m["order"]) for m in self.asked if m["do"] == "clock_block")


class Reference:
    """Answers like ReferenceClock for a reference whose calls take `ms`, and `now` beside a candidate."""

    def __init__(self, ms=2.0, now=None, *, capturable=True):
        self.now, self.capturable = now or ms, capturable
        self.method, self.why, self.host_us = TimingMethod.GRAPH, "", 40.0
        self.ms, self.anew, self.released = ms, 0, 0

    def open(self, method=TimingMethod.GRAPH):
        self.method = method if self.capturable else TimingMethod.QUEUED
        self.why = "" if self.capturable else "it reads a value"

    def block(self, calls):
        return [self.now] * calls

    @property
    def record(self):
        return summarise_samples([self.ms] * 20, self.method)

    def time_anew(self):
        self.anew += 1
        self.ms = self.now

    def release(self):
        self.released += 1

    def release_if_large(self):
        pass


class Gpu:
    name, uuid, flush_ms = "a GPU", "", 0.1

    def __init__(self, shared=False, beside=()):
        self.shared, self.beside = shared, list(beside)

    def refuse_a_shared_gpu(self):
        if self.shared:
            raise InfrastructureError("shared")

    def neighbours(self):
        return self.beside.pop(0) if self.beside else ()


def measured(process, reference, gpu=None, **named):
    sparing, alone = named.get("sparing", False), named.get("alone", nullcontext)
    found = Measuring(gpu or Gpu(), process, reference, SETS, {0: 2}, sparing, alone)
    return found.run((), named.get("compare"), time.monotonic())


def test_speedup_is_eagers_median_over_the_candidates_and_its_bound_is_lower():
    found = measured(Process(1.0), Reference(2.0))
    assert found.speedup == pytest.approx(2.0, rel=2e-3)
    assert found.speedup_low <= found.speedup
    assert found.candidate.method is found.eager.method is TimingMethod.GRAPH
    assert (found.host_ms, found.eager_host_ms) == (3.0, 0.04)
    assert [(s.name, s.launch, s.share) for s in found.steps] == [
        ("relu", True, 0.75),
        ("aten.copy_.default", False, 0.25),
    ]


def test_all_of_it_stays_within_the_budget_of_gpu_time():
    process = Process(1.0)
    measured(process, Reference(2.0))
    assert 12 <= process.calls() <= 60
    assert process.asked[0]["choices"] == [(0, 2)]


def test_a_slow_candidate_is_timed_a_few_times_only():
    process = Process(50.0)
    found = measured(process, Reference(1.0))
    assert process.calls() <= 2 + CALLS_WHEN_SLOW
    assert found.speedup == pytest.approx(0.02, rel=1e-2)


@pytest.mark.parametrize(("captured", "capturable"), [(False, True), (True, False)])
def test_where_either_cannot_be_captured_both_are_timed_without_and_it_is_said(
    captured, capturable
):
    process = Process(captured=captured)
    found = measured(process, Reference(capturable=capturable))
    assert found.candidate.method is found.eager.method is TimingMethod.QUEUED
    assert any("without CUDA graphs" in note for note in found.notes)
    assert process.asked[0]["graphs"] is capturable


def test_a_reference_that_has_drifted_is_measured_anew():
    reference = Reference(2.0, now=2.2)
    found = measured(Process(1.0), reference)
    assert reference.anew == 1
    assert found.eager.median == 2.2
    assert found.eager_drift == pytest.approx(0.1)


def test_a_gpu_that_is_shared_is_refused():
    with pytest.raises(InfrastructureError):
        measured(Process(1.0), Reference(2.0, now=3.0), Gpu(shared=True))


def test_a_neighbour_at_work_while_a_candidate_is_timed_stands_in_the_measurement():
    half, whole = (
        Neighbour(uuid="GPU-2", name="H100", busy=busy, power_watts=600.0) for busy in (0.5, 0.9)
    )
    assert measured(Process(1.0), Reference(2.0), Gpu(beside=[(half,), (whole,)])).neighbours == (
        whole,
    )
    assert measured(Process(1.0), Reference(2.0)).neighbours == ()


def test_work_outside_of_the_timed_stream_is_seen_by_the_judges_clock():
    process = Process(0.01, hidden=0.01)
    with pytest.raises(Failed) as failed:
        measured(process, Reference(2.0))
    assert failed.value.failure.cheat is Cheat.CLOCK
    assert len([m for m in process.asked if m["do"] == "clock_block"]) <= MAX_DOUBTED_BLOCKS + 2


def test_calls_that_leave_something_behind_are_timed_again_with_all_memory_restored():
    process = Process(disturbed=[True])
    found = measured(process, Reference())
    opened = [m["everything"] for m in process.asked if m["do"] == "clock_open"]
    assert opened == [False, True]
    assert any("outlives" in note for note in found.notes)


def test_a_timed_output_that_is_wrong_is_an_answer_remembered():
    def compare(index):
        raise Failed(Failure(fault=Fault.MISMATCH, message="all wrong"))

    with pytest.raises(Failed) as failed:
        measured(Process(), Reference(), compare=compare)
    assert failed.value.failure.cheat is Cheat.CACHE


@pytest.mark.parametrize(
    "answer",
    [
        {"clock_open": {}},
        {"clock_open": {"captured": True, "why": "", "host_ms": "x", "copied": True}},
        {"clock_block": {"ms": 3, "block_ms": 1}},
        {"clock_block": {"ms": [1.0], "block_ms": 1}},
        {"clock_block": {"ms": [-1.0] * 2, "block_ms": 1}},
        {"clock_check": {}},
        {"clock_launches": {"launches": [{"name": "x"}]}},
    ],
)
def test_an_answer_of_no_known_form_is_a_failure_and_no_crash_of_ours(answer):
    with pytest.raises(Failed) as failed:
        measured(Process(answer=answer), Reference())
    assert failed.value.failure.fault in (Fault.CRASH, Fault.CHEAT)


def test_the_interval_holds_the_median_and_the_bound_is_least_kind():
    samples = [1.0, 1.1, 0.9, 1.0, 1.05], [2.0, 2.2, 1.9]
    candidate, eager = (summarise_samples(times, TimingMethod.QUEUED) for times in samples)
    assert candidate.low <= candidate.median <= candidate.high
    assert Speedup.between(eager, candidate) == Speedup(median=2.0, low=1.9 / 1.1, high=2.2 / 0.9)


def test_a_large_answer_is_compared_while_neither_side_keeps_graphs():
    process, reference, seen = Process(), Reference(), []

    def compare(index):
        seen.append((process.asked[-1]["do"], reference.released))

    found = measured(process, reference, compare=compare, sparing=True)
    assert seen == [("clock_close", 1)]
    after = [message["do"] for message in process.asked]
    assert after[after.index("clock_check") :] == [
        "clock_check",
        "clock_launches",
        "clock_close",
        "clock_close",
    ]
    assert found.steps
    measured(process, reference, compare=compare)
    assert seen[1:] == [("clock_launches", 1)], "a small one beside them"


@pytest.mark.parametrize("disturbed", [False, True])
def test_nobody_else_computes_while_something_is_timed_and_others_do_while_graphs_are_made_and_answers_compared(
    disturbed,
):
    inside, seen = [], []

    class Watched(Process):
        def ask(self, message, **named):
            seen.append((message["do"], bool(inside)))
            return super().ask(message, **named)

    @contextmanager
    def alone():
        inside.append(1)
        yield
        inside.pop()

    process = Watched(disturbed=[disturbed])
    measured(
        process,
        Reference(),
        compare=lambda index: seen.append(("compare", bool(inside))),
        alone=alone,
    )
    assert {name for name, was_alone in seen if was_alone} == {
        "clock_block",
        "clock_check",
        "clock_launches",
    }
    assert {name for name, was_alone in seen if not was_alone} == {
        "clock_open",
        "compare",
        "clock_close",
    }

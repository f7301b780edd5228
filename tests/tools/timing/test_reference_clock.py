"""The reference is run many times to be timed, and the judge goes on with the same module afterwards."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn

from kernelwright.tools.expected.prepared_problem import prepare_problem
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.models.model_state import BuffersAsTheyWere
from kernelwright.tools.report import TimingMethod
from kernelwright.tools.timing import reference_clock
from kernelwright.tools.timing.reference_clock import ReferenceClock

PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.register_buffer("last", torch.zeros(width))
    def forward(self, x):
        self.last = x[0]
        return self.norm(x)
def get_inputs():
    return [torch.rand(64, 16)]
def get_init_inputs():
    return [16]
"""


def run_all(calls, before, host_us=0.0):
    """As `timed_block` without a GPU."""
    for call, prepare in zip(calls, before, strict=True):
        prepare()
        call()
    return [1.0] * len(calls), float(len(calls))


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(reference_clock, "timed_block", run_all)


def state(model):
    return {name: (id(buffer), buffer.clone()) for name, buffer in model.named_buffers()}


def test_a_reference_that_was_timed_holds_the_running_statistics_that_it_began_with(without_gpu):
    prepared = prepare_problem(Problem(name="statistics", source=PROBLEM), "cpu", 1)
    model = prepared.model
    inputs = prepared.reference.inputs(7)
    before = state(model)
    assert {"norm.running_mean", "last"} <= prepared.reference.changing
    kept = BuffersAsTheyWere(model, prepared.reference.changing)
    clock = ReferenceClock(model, [inputs], buffers=kept)
    clock.open(TimingMethod.QUEUED)
    clock.block(8)
    now = state(model)
    assert {n: i for n, (i, _) in now.items()} == {n: i for n, (i, _) in before.items()}
    assert all(torch.equal(now[n][1], value) for n, (_, value) in before.items())


def test_what_is_timed_begins_with_the_same_state_in_every_call(without_gpu):
    model = nn.BatchNorm1d(4)
    seen = []
    model.register_forward_pre_hook(lambda module, _: seen.append(module.running_mean.clone()))
    clock = ReferenceClock(
        model,
        [[torch.rand(8, 4)]],
        buffers=BuffersAsTheyWere(model, [n for n, _ in model.named_buffers()]),
    )
    clock.open(TimingMethod.QUEUED)
    del seen[:]
    clock.block(4)
    assert len(seen) == 4
    assert all(torch.equal(one, torch.zeros(4)) for one in seen)


def test_a_reference_that_fails_while_it_is_timed_leaves_its_state_too(without_gpu):
    model = nn.BatchNorm1d(4)
    model.register_forward_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("no room")))
    clock = ReferenceClock(
        model,
        [[torch.rand(8, 4)]],
        buffers=BuffersAsTheyWere(model, [n for n, _ in model.named_buffers()]),
    )
    with pytest.raises(RuntimeError, match="no room"):
        clock.open(TimingMethod.QUEUED)
    assert torch.equal(model.running_mean, torch.zeros(4))
    assert model.num_batches_tracked == 0


def test_a_slow_reference_in_turns_with_a_fast_one_is_timed_no_more_than_its_budget(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    order: list[tuple[str, int]] = []

    class Timed(ReferenceClock):
        def __init__(self, name: str, ms: float) -> None:
            super().__init__(lambda: None, [[]])
            self.name, self.ms, self.method = name, ms, TimingMethod.QUEUED

        def block(self, calls: int) -> list[float]:
            assert calls > 0
            order.append((self.name, calls))
            return [self.ms * (1 + 0.1 * (i % 3)) for i in range(calls)]

    slow, fast = Timed("slow", 30.0), Timed("fast", 0.01)
    reference_clock.time_in_turns([slow, fast])
    assert (slow.record.calls, fast.record.calls) == (
        reference_clock.MIN_CALLS,
        reference_clock.MAX_CALLS,
    )
    assert order[:6] == [
        ("slow", 2),
        ("slow", 3),
        ("fast", 2),
        ("fast", 3),
        ("slow", 5),
        ("fast", 8),
    ]
    assert {name for name, _ in order[6:]} == {"fast"}

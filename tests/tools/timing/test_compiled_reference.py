"""torch.compile's time is taken as eager's is, by one clock and one method."""

from __future__ import annotations

import pytest
import torch

from bench.judge_suites import problem_of
from kernelwright.tools.gpu.cuda_graphs import CaptureFailed
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import MixedTimings, ProfileResult, Report, Speedup, TimingMethod
from kernelwright.tools.timing import reference_clock
from kernelwright.tools.timing.compiled_reference import Baseline, CompiledReference
from kernelwright.tools.timing.extras import compared_with
from kernelwright.tools.timing.measurement import summarise_samples

PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
    def forward(self, x, total):
        total.add_(x)
        return self.norm(x) + total
def get_inputs():
    return [torch.rand(64, 16), torch.zeros(64, 16)]
def get_init_inputs():
    return [16]
"""
GRAPH, QUEUED, WITH_HOST = TimingMethod.GRAPH, TimingMethod.QUEUED, TimingMethod.WITH_HOST


def times(ms: float, method: TimingMethod):
    return summarise_samples([ms] * 20, method)


class Watched:
    """Stands for the device: runs calls at once, and notes how each block was asked for."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def timed_block(self, calls, before, host_us=0.0):
        self.waits.append(host_us)
        for call, prepare in zip(calls, before, strict=True):
            prepare()
            call()
        return [1.0] * len(calls), float(len(calls))

    @staticmethod
    def host_time(call):
        call()
        return 30.0


@pytest.fixture
def device(monkeypatch):
    watched = Watched()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 36, 1 << 36))
    monkeypatch.setattr(reference_clock, "timed_block", watched.timed_block)
    monkeypatch.setattr(reference_clock, "host_time", watched.host_time)
    yield watched
    torch._dynamo.reset()


def test_eager_and_compiled_are_timed_alike_and_find_the_state_that_they_began_with(device):
    reference = CompiledReference(Problem(name="changes", source=PROBLEM), "cpu")
    queued = reference.time(QUEUED)
    assert queued.eager.method is queued.compiled.method is QUEUED
    assert queued.eager.calls == queued.compiled.calls >= 8
    assert (queued.eager_host_ms, queued.compiled_host_ms) == (0.03, 0.03)
    assert set(device.waits) == {30.0}
    for clock in (reference._eager, reference._compiled):
        assert len(clock._sets) == 2
        assert all(not bool(arguments[1].any()) for arguments in clock._sets)
        assert clock._call.norm.num_batches_tracked == 0
    with_host = reference.time(WITH_HOST)
    assert with_host.eager.method is with_host.compiled.method is WITH_HOST
    assert device.waits[-1] == 0.0


@pytest.mark.slow
def test_where_only_one_can_be_captured_both_are_timed_without_graphs_and_it_is_said(
    device, monkeypatch
):
    captured = []

    class Graph:
        lasting = frozenset()

        def __init__(self, call, pool):
            self.outputs = call()
            self.replay = call
            captured.append(self)
            if len(captured) > 2:
                raise CaptureFailed("it waits for the device")

        def release(self):
            pass

    monkeypatch.setattr(reference_clock, "Captured", Graph)
    monkeypatch.setattr(reference_clock, "Pool", lambda: None)
    baseline = CompiledReference(problem_of("fused_silu"), "cpu").time(GRAPH)
    assert baseline.eager.method is baseline.compiled.method is QUEUED
    assert baseline.note == (
        "torch.compile timed without CUDA graphs: what torch.compile made of it cannot be captured "
        "(it waits for the device)"
    )


@pytest.mark.parametrize("others", [QUEUED, WITH_HOST, None])
def test_times_by_different_methods_are_not_divided(others):
    with pytest.raises(MixedTimings):
        Speedup.between(times(2.0, others), times(1.0, GRAPH))
    with pytest.raises(MixedTimings):
        Speedup.between(times(2.0, None), times(1.0, None))


def profile(method: TimingMethod) -> ProfileResult:
    return ProfileResult(
        device="H100",
        candidate=times(1.0, method),
        eager=times(2.0, method),
        speedup=2.0,
        speedup_low=2.0,
    )


@pytest.mark.parametrize("method", [GRAPH, QUEUED])
def test_the_ratio_over_torch_compile_goes_through_eager(method):
    baseline = Baseline(
        eager=times(3.0, method), compiled=times(1.5, method), compiled_host_ms=0.021
    )
    compared = compared_with(baseline, profile(method))
    assert (compared.speedup_compiled, compared.speedup_compiled_low) == (1.0, 1.0)
    assert compared.speedup_compiled_estimate is None
    assert compared.compiled_host_ms == 0.021


@pytest.mark.parametrize(("eager", "compiled", "estimate"), [(3.0, 1.2, 0.8), (1.0, 0.7, 0.7)])
def test_what_does_not_compare_is_the_lowest_estimate_and_no_measurement(eager, compiled, estimate):
    note = "torch.compile timed without CUDA graphs"
    baseline = Baseline(eager=times(eager, QUEUED), compiled=times(compiled, QUEUED), note=note)
    compared = compared_with(baseline, profile(GRAPH))
    assert compared.speedup_compiled is compared.speedup_compiled_low is None
    assert compared.speedup_compiled_estimate == pytest.approx(estimate)
    assert compared.notes == (baseline.note,)


def test_a_ratio_of_an_older_report_is_an_estimate_however_often_it_is_read():
    old = profile(GRAPH).with_(compiled=times(1.5, GRAPH), speedup_compiled=1.5)
    report = Report(
        problem="p", problem_hash="h", candidate_hash="c", schema_version=2, profile=old
    )
    stored = report.model_dump(mode="json")
    for name in ("candidate", "eager", "compiled"):
        stored["profile"][name].pop("method")
    stored["profile"] |= {"speedup_compiled": 1.5, "speedup_compiled_estimate": None}
    once = Report.model_validate(stored)
    for read in (once, Report.model_validate_json(once.model_dump_json())):
        assert read.profile.speedup_compiled is None
        assert read.profile.speedup_compiled_estimate == 1.5
        assert read.profile.compiled.method is WITH_HOST
        assert read.profile.speedup == 2.0


@pytest.mark.gpu
def test_graphs_leave_out_the_host_of_a_small_compiled_reference():
    reference = CompiledReference(problem_of("fused_silu"), "cuda:0")
    graph, with_host = reference.time(GRAPH), reference.time(WITH_HOST)
    assert not graph.note
    assert graph.eager.method is graph.compiled.method is GRAPH
    assert graph.compiled.median < 1.02 * with_host.compiled.median
    assert graph.compiled_host_ms > 0.0


@pytest.mark.gpu
def test_a_reference_that_waits_for_the_device_is_timed_from_a_full_queue():
    source = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * x.sum().item()
def get_inputs():
    return [torch.rand(1 << 20)]
def get_init_inputs():
    return []
"""
    baseline = CompiledReference(Problem(name="waits", source=source), "cuda:0").time(GRAPH)
    assert baseline.eager.method is baseline.compiled.method is QUEUED
    assert "cannot be captured" in baseline.note

"""The ladder's own parts: the cache of verdicts, the lease of a GPU, the statistics of the clock, shared memory."""

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time

import pytest
import torch

from bench.suite import problem_of
from kernelwright.tools.hardware.lease import gpu_lease, lock_file
from kernelwright.tools.judging.own_work import Rule
from kernelwright.tools.judging.verdict_cache import VerdictCache
from kernelwright.tools.pipeline import Evaluator, Options
from kernelwright.tools.references.input_distributions import Draw, apply, keep_edges
from kernelwright.tools.references.shared_tensors import Buffers
from kernelwright.tools.report import Environment, Failure, Fault, InfrastructureError, Report, Rung
from kernelwright.tools.timing.measurement import is_settled, speedup_with_lower_bound, summarise_samples

HOLD = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from kernelwright.tools.hardware.lease import gpu_lease
with gpu_lease("GPU-1/2"):
    print("held", flush=True)
    time.sleep(60)
"""
SOFTMAX = "tests/kernels/good/fused_softmax.py"


def test_a_verdict_is_asked_for_once_and_known_afterwards(tmp_path, request):
    source = (request.config.rootpath / SOFTMAX).read_text()
    problem = problem_of("fused_softmax")
    with Evaluator("cpu", cache_dir=tmp_path) as evaluator:
        first = evaluator.evaluate(problem, source)
        second = evaluator.evaluate(problem, "# a comment\n" + source)
        other = evaluator.evaluate(problem, source, Options(own_work="report"))
    assert first.correct
    assert not first.cached
    assert second.cached
    assert second.with_(cached=False, seconds=first.seconds) == first
    assert not other.cached


def test_asyncio_goes_on_while_verdicts_are_made(request):
    source = (request.config.rootpath / SOFTMAX).read_text()
    wrong = source.replace("tl.exp", "tl.exp2")
    problem = problem_of("fused_softmax")
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    async def both() -> list[Report]:
        async with Evaluator("cpu", workers=2) as evaluator:
            beating = asyncio.create_task(beat())
            reports = await asyncio.gather(*(evaluator.evaluate_async(problem, text) for text in (source, wrong)))
            beating.cancel()
            return reports

    assert [report.correct for report in asyncio.run(both())] == [True, False]
    assert beats > 10


def test_verdicts_never_cross_devices(tmp_path):
    cache = VerdictCache(tmp_path)
    here, there = (Environment(gpu=name, torch="2.13.0") for name in ("", "NVIDIA H200"))
    keys = {cache.key("c", "p", environment, "rules") for environment in (here, there)}
    assert len(keys) == 2


@pytest.mark.parametrize("fault", [Fault.TIMEOUT, Fault.CRASH, Fault.MEMORY])
def test_what_a_loaded_machine_may_cause_is_asked_again(tmp_path, fault):
    cache = VerdictCache(tmp_path)
    cache.keep(
        "ab12", Report(problem="p", problem_hash="h", candidate_hash="c", failure=Failure(fault=fault, message=""))
    )
    assert cache.find("ab12") is None


def test_a_spoilt_cache_file_is_no_verdict(tmp_path):
    cache = VerdictCache(tmp_path)
    cache.keep("ab12", Report(problem="p", problem_hash="h", candidate_hash="c"))
    next(tmp_path.rglob("*.json")).write_text("{")
    assert cache.find("ab12") is None


def test_two_never_measure_on_one_gpu():
    inside, most = [], []

    def hold() -> None:
        with gpu_lease("test-gpu-lease"):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.05)
            inside.pop()

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]


def test_several_check_side_by_side_and_nobody_overtakes_whoever_wants_to_be_alone():
    order, begun = [], threading.Event()

    def alone() -> None:
        with gpu_lease("test-gpu-shared", 60.0, lambda _: begun.set()):
            order.append("alone")

    def late() -> None:
        with gpu_lease("test-gpu-shared", 60.0, shared=True):
            order.append("late")

    with gpu_lease("test-gpu-shared", shared=True), gpu_lease("test-gpu-shared", 0.1, shared=True):
        first = threading.Thread(target=alone)
        first.start()
        assert begun.wait(60.0)
        waiting = threading.Event()
        with pytest.raises(InfrastructureError, match="another process"):  # the door is shut: nobody comes in
            gpu_lease("test-gpu-shared", 0.2, lambda _: waiting.set(), shared=True).__enter__()
        assert waiting.is_set()
        assert order == []
    first.join()
    late()
    assert order == ["alone", "late"]


def test_what_is_raised_while_the_gpu_is_held_comes_out_as_it_is():
    with pytest.raises(FileNotFoundError, match="of the work"), gpu_lease("test-gpu-raises"):
        raise FileNotFoundError("of the work")
    with gpu_lease("test-gpu-raises", 0.0):
        pass


def test_a_gpu_that_stays_busy_is_trouble_of_ours():
    with (
        gpu_lease("test-gpu-busy"),
        pytest.raises(InfrastructureError, match="another process"),
        gpu_lease("test-gpu-busy", 0.1),
    ):
        pass


def test_the_interval_holds_the_median_and_narrows_with_calls():
    generator = torch.Generator().manual_seed(0)
    few, many = ((1 + 0.05 * torch.randn(n, generator=generator)).tolist() for n in (20, 2000))
    a, b = summarise_samples(few), summarise_samples(many)
    assert a.low <= a.median <= a.high
    assert b.high - b.low < a.high - a.low
    assert is_settled(b)
    assert not is_settled(summarise_samples([1.0] * 8))
    speedup, low = speedup_with_lower_bound(summarise_samples([2.0] * 20), summarise_samples([1.0] * 20))
    assert (speedup, low) == (2.0, 2.0)


def test_shared_memory_shows_a_write_outside_its_tensor():
    buffers = Buffers("cpu")
    shared = buffers.new((3, 5), (5, 1), torch.float32)
    shared.fill_margins(0xFF)
    shared.tensor.fill_(1.0)
    assert shared.margins_hold(0xFF)
    shared.memory[shared.start - 4] = 0
    assert not shared.margins_hold(0xFF)
    buffers.close()


@pytest.mark.parametrize("draw", list(Draw))
def test_a_draw_keeps_zeros_and_symmetry(draw):
    generator = torch.Generator().manual_seed(1)
    square = torch.randn(9, 9, generator=generator)
    triangle, symmetric = torch.tril(square), square + square.T
    apply(draw, [triangle, symmetric])
    assert not triangle.triu(1).any()
    if draw is not Draw.CONSTANT_ROWS:
        assert torch.equal(symmetric, symmetric.T)


def test_inputs_that_keep_their_edges_differ_inside():
    old, new = torch.randn(6, 7), torch.randn(6, 7)
    keep_edges([new], [old])
    assert torch.equal(new[:, 0], old[:, 0])
    assert torch.equal(new[-1], old[-1])
    assert not (new[1:-1, 1:-1] == old[1:-1, 1:-1]).any()


@pytest.mark.parametrize("text", ["share", "share:2", "all", "strict:1", "share:x"])
def test_an_unknown_rule_of_own_work_is_one_line(text):
    with pytest.raises(ValueError):
        Rule.parse(text)


def test_a_syntax_error_costs_no_process():
    with Evaluator("cpu") as evaluator:
        report = evaluator.evaluate(problem_of("fused_softmax"), "import torch\nclass ModelNew(:\n")
    assert report.failure.fault is Fault.SYNTAX
    assert report.rung is Rung.SOURCE
    assert report.failure.where.line == 2


def test_waiting_for_a_place_is_no_part_of_what_a_verdict_took():
    """A batch of 100 problems on two cores said "8000 s of tools" after 335 s."""
    from bench.suite import honest
    from kernelwright.agent.batch.lanes import Gate

    entry = next(e for e in honest() if e.name == "fused_silu")
    problem, gate, options = problem_of(entry.problem), Gate("one", 1), Options(profile=False, torch_compile=False)
    with Evaluator("cpu", workers=1, lane=lambda lane: gate.enter()) as evaluator:
        with gate.enter():
            start = time.monotonic()
            job = evaluator.submit(problem, entry.source, options)
            while not gate.traffic.waiting:
                time.sleep(0.01)
            waits = time.monotonic()
            time.sleep(1.0)
            waited = time.monotonic() - waits
        report = job.result()
        wall = time.monotonic() - start
    assert report.correct
    assert 0 < report.seconds <= wall - waited


def test_the_lease_of_a_gpu_lies_in_a_file_that_every_user_may_lock_and_says_when_it_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said: list[str] = []
    before = os.umask(0o077)
    try:
        with gpu_lease("GPU-1/2"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(lock_file("GPU-1/2").stat().st_mode) == 0o666
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(InfrastructureError, match="another process"), gpu_lease("GPU-1/2", 0.1, said.append):
        pass
    holder.kill()
    holder.wait()
    with gpu_lease("GPU-1/2", 5.0):
        pass
    assert said == ["waiting for the GPU: another process is measuring on it"]

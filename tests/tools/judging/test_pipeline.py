"""The ladder's own parts: the cache of verdicts, the statistics of the clock, shared memory."""

import asyncio
import time

import pytest
import torch

from bench.judge_suites import problem_of
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.judging.own_work import Rule
from kernelwright.tools.judging.size_checks import SizeChecks
from kernelwright.tools.references.input_distributions import Draw, apply_draw, keep_edges
from kernelwright.tools.references.shared_tensors import Buffers
from kernelwright.tools.report import (
    Environment,
    Failure,
    Fault,
    Report,
    Rung,
    Speedup,
    TimingMethod,
)
from kernelwright.tools.timing.measurement import is_settled, summarise_samples
from kernelwright.tools.verdict_cache import VerdictCache

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
            reports = await asyncio.gather(
                *(evaluator.evaluate_async(problem, text) for text in (source, wrong))
            )
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
        "ab12",
        Report(
            problem="p",
            problem_hash="h",
            candidate_hash="c",
            failure=Failure(fault=fault, message=""),
        ),
    )
    assert cache.find("ab12") is None


def test_a_spoilt_cache_file_is_no_verdict(tmp_path):
    cache = VerdictCache(tmp_path)
    cache.keep("ab12", Report(problem="p", problem_hash="h", candidate_hash="c"))
    next(tmp_path.rglob("*.json")).write_text("{")
    assert cache.find("ab12") is None


def test_the_interval_holds_the_median_and_narrows_with_calls():
    generator = torch.Generator().manual_seed(0)
    few, many = ((1 + 0.05 * torch.randn(n, generator=generator)).tolist() for n in (20, 2000))
    a, b = summarise_samples(few), summarise_samples(many)
    assert a.low <= a.median <= a.high
    assert b.high - b.low < a.high - a.low
    assert is_settled(b)
    assert not is_settled(summarise_samples([1.0] * 8))
    eager, candidate = (summarise_samples([ms] * 20, TimingMethod.GRAPH) for ms in (2.0, 1.0))
    assert Speedup.between(eager, candidate) == Speedup(median=2.0, low=2.0, high=2.0)


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
    apply_draw(draw, [triangle, symmetric])
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
    from bench.judge_suites import honest
    from kernelwright.agent.judging.lanes import Gate

    entry = next(e for e in honest() if e.name == "fused_silu")
    problem, gate, options = (
        problem_of(entry.problem),
        Gate("one", 1),
        Options(profile=False, torch_compile=False),
    )
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


def test_a_process_that_ends_while_a_wrong_answer_is_explained_costs_no_verdict(
    request, monkeypatch
):
    ended: list[int] = []

    def end_as_after_a_time_limit(self: SizeChecks, expected: object, name: str, shuffle: int):
        ended.append(shuffle)
        self.calls._replayer.close()
        return False

    monkeypatch.setattr(SizeChecks, "_right_in_another_order", end_as_after_a_time_limit)
    source = (request.config.rootpath / SOFTMAX).read_text().replace("tl.exp(", "0.5 + tl.exp(")
    with Evaluator("cpu") as evaluator:
        report = evaluator.evaluate(problem_of("fused_softmax"), source, Options(sizes=1))
    assert report.failure.fault is Fault.MISMATCH
    assert len(ended) == 1

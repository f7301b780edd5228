"""Judge processes on this machine: real ones."""

import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from kernelwright.agent.judging import local_judge
from kernelwright.agent.judging.evaluating import PoolEvaluator
from kernelwright.agent.judging.judge_process import CPU_NICENESS
from kernelwright.agent.judging.local_pool import LocalPool
from kernelwright.agent.judging.pool import DeviceKind, JudgeLost, PoolClosed, VerdictCancelled
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import InfrastructureError

OPTIONS = Options(sizes=1, seed=1)
SLOW = Options(sizes=1, compile_seconds=400.0)


@pytest.fixture(scope="module")
def pool():
    found = LocalPool(["cpu"], 1)
    yield found
    found.close()


@pytest.fixture(scope="module")
def right(request):
    return (request.config.rootpath / "tests" / "kernels" / "good" / "fused_silu.py").read_text()


@pytest.fixture
def hangs(right):
    return right + "\nwhile True:\n    pass\n"


def tracing(pool, hangs, options=SLOW):
    """A verdict that a judge is in the middle of."""
    begun = threading.Event()
    future = pool.submit(
        find_by_name("fused_silu"), hangs, options, lambda doing: doing == "tracing" and begun.set()
    )
    assert begun.wait(500)
    return future


def test_a_pool_says_what_it_has(pool):
    assert (pool.devices, pool.capacity(DeviceKind.CPU), pool.capacity(DeviceKind.CUDA)) == (
        (DeviceKind.CPU,),
        1,
        0,
    )
    assert pool.environment(DeviceKind.CPU).torch
    assert pool.target(DeviceKind.CPU) == "sm_90"


@pytest.mark.slow
def test_a_verdict_of_a_judge_process_is_the_evaluator_s(pool, right):
    steps, judges = [], []
    report = pool.submit(
        find_by_name("fused_silu"), right, OPTIONS, steps.append, None, judges.append
    ).result(500)
    assert report.correct
    assert "tracing" in steps
    assert judges == ["cpu:0"]


def test_a_reference_that_cannot_be_used_raises_what_the_tools_raise(pool, right):
    with pytest.raises(ProblemError, match="lacks"):
        pool.submit(Problem(name="none", source="x = 1"), right).result(500)


@pytest.mark.slow
def test_what_waits_can_be_cancelled_and_what_is_under_way_stops_at_its_next_step(
    pool, hangs, right
):
    first = pool.submit(find_by_name("fused_silu"), hangs, Options(sizes=1, compile_seconds=2.0))
    second = pool.submit(find_by_name("fused_silu"), right, OPTIONS)  # the one judge has the first
    pool.cancel(second)
    with pytest.raises(VerdictCancelled):
        second.result(500)
    assert first.result(500).failure.fault == "timeout"
    pool.cancel(first)  # it has ended: nothing happens
    stopped = pool.submit(
        find_by_name("fused_silu"), right, OPTIONS, lambda doing: pool.cancel(stopped)
    )
    with pytest.raises(VerdictCancelled):
        stopped.result(500)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_judge_that_dies_loses_its_verdict_and_another_takes_its_place(pool, hangs, right):
    future = tracing(pool, hangs)
    [process], ready = pool.process_ids.values(), []
    future.add_done_callback(lambda _: ready.append([judge.ready for judge in pool.judges()]))
    os.kill(process, signal.SIGKILL)
    with pytest.raises(JudgeLost, match="the judge cpu:0 died"):
        future.result(500)
    assert pool.submit(find_by_name("fused_silu"), right, OPTIONS).result(500).correct
    assert process not in pool.process_ids.values()
    assert (ready, [judge.ready for judge in pool.judges()]) == ([[False]], [True])


@pytest.mark.slow
@pytest.mark.nightly
def test_a_judge_that_is_frozen_keeps_nobody_waiting_and_is_ended_as_one_that_died(
    monkeypatch, right
):
    """It reads nothing: texts larger than what a socket holds are left with who writes to it."""
    pool = LocalPool(["cpu"], 1)
    try:
        assert pool.submit(find_by_name("fused_silu"), right, OPTIONS).result(500).correct
        usual_seconds = local_judge.MAX_SILENT_SECONDS
        monkeypatch.setattr(local_judge, "MAX_SILENT_SECONDS", 12.0)
        assert pool.submit(find_by_name("fused_silu"), right, OPTIONS).result(500).correct, (
            "it waits 12 s from now"
        )
        [process] = pool.process_ids.values()
        os.kill(process, signal.SIGSTOP)
        began = time.monotonic()
        future = pool.submit(find_by_name("fused_silu"), f"{right}\n# {'x' * 2**20}\n", OPTIONS)
        pool.cancel(future)
        assert time.monotonic() - began < 5
        with pytest.raises(JudgeLost, match="said nothing for 12 s"):
            future.result(500)
        # Its successor imports torch beside whatever else runs here, and may be silent for longer.
        monkeypatch.setattr(local_judge, "MAX_SILENT_SECONDS", usual_seconds)
        assert pool.submit(find_by_name("fused_silu"), right, OPTIONS).result(500).correct
    finally:
        pool.close()


@pytest.mark.slow
@pytest.mark.nightly
def test_an_evaluator_of_a_pool_asks_again_and_its_report_says_so(pool, right):
    slow, killed = right + "\nimport time\ntime.sleep(3)\n", []

    def kill_once(doing):
        if doing == "tracing" and not killed:
            killed.append(doing)
            os.kill(pool.process_ids["cpu:0"], signal.SIGKILL)

    report = PoolEvaluator(pool).evaluate(find_by_name("fused_silu"), slow, OPTIONS, kill_once)
    assert killed
    assert [
        warning
        for warning in report.warnings
        if warning.startswith("attempt 1 was lost: the judge cpu:0 died")
    ]


@pytest.mark.slow
@pytest.mark.nightly
def test_closing_ends_every_process_and_what_was_under_way(hangs):
    pool = LocalPool(["cpu"], 1)
    future, waiting = tracing(pool, hangs), pool.submit(find_by_name("fused_silu"), hangs, SLOW)
    [process] = pool.process_ids.values()
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 200, "not the time of a verdict"
    for one in (future, waiting):
        with pytest.raises(PoolClosed):
            one.result(500)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    with pytest.raises(InfrastructureError):
        pool.submit(find_by_name("fused_silu"), hangs)


def test_a_judge_and_all_that_it_starts_come_after_others_for_a_processor(pool, right):
    """Also its sandboxes, whose sessions Linux would give a share as large as that of whoever answers requests."""
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel does not group processes by their session")
    assert pool.submit(find_by_name("fused_silu"), right, OPTIONS).result(500).correct
    [number] = pool.process_ids.values()
    judge = psutil.Process(number)
    below = {
        process.pid: autogroup(process.pid) for process in (judge, *judge.children(recursive=True))
    }
    sessions = {os.getsid(pid) for pid, niceness in below.items() if niceness is not None}
    assert len(sessions) > 2  # the judge's, and that of each sandbox
    assert {niceness for niceness in below.values() if niceness is not None} == {CPU_NICENESS}


def autogroup(process):
    """Niceness of its session; None of a process that has ended."""
    try:
        return int(Path(f"/proc/{process}/autogroup").read_text().rpartition("nice ")[2])
    except (FileNotFoundError, ProcessLookupError):
        return None

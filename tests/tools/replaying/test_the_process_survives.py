"""The judge's handle: whatever ends, hangs or forges over there is a failure of that candidate, and the next one is
judged.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from kernelwright.tools.replaying.replayer import MAX_MAPPED_ALLOCATIONS, Replayer
from kernelwright.tools.report import Cheat, Failed, Fault, InfrastructureError
from kernelwright.tools.sandbox import ProcessKind, Zygote
from kernelwright.tools.trace.trace import Trace

NEGATE = """
def negate(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, -tl.load(x + i, mask=i < n), mask=i < n)
"""
POINTERS = {"x": "*fp32", "y": "*fp32"}


def negating(write, text=NEGATE, grid=2, n=20):
    kernel = write.kernel(text, POINTERS | {"n": "i32"}, BLOCK=16)
    name = kernel[0].name
    steps = (
        write.op("empty_like", write.t(0), out=1),
        write.launch(name, grid, x=write.t(0), y=write.t(1), n=n),
    )
    return write.traced(Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(1)), kernel)


def judged_as_if_nothing_had_happened(bench, write) -> bool:
    x = torch.randn(20)
    bench.open(negating(write))
    bench.call([x], [x])
    return torch.equal(bench.got[0], -x)


def test_a_kernel_that_hangs_times_out_and_the_next_one_is_judged(bench, write):
    text = "def hang(x, y, n, BLOCK: tl.constexpr):\n    while tl.load(x) == 0:\n        pass\n"
    bench.open(negating(write, text), seconds=300.0)
    bench.call([torch.ones(20)], [torch.zeros(20)])  # it does not hang on these
    bench.replayer._allow(2.0)
    with pytest.raises(Failed) as caught:
        bench.call([torch.zeros(20)], [torch.zeros(20)])
    assert caught.value.failure.fault is Fault.TIMEOUT
    assert (
        "no answer within 2 s while the judge asked to run forward" in caught.value.failure.message
    )
    assert judged_as_if_nothing_had_happened(bench, write)


def test_a_grid_without_end_times_out(bench, write):
    with pytest.raises(Failed) as caught:  # noqa: PT012 (a busy machine is out of time while it opens it)
        bench.open(negating(write, grid=(1, 65535, 65535)), seconds=1.5)
        bench.call([torch.zeros(20)], [torch.zeros(20)])
    assert caught.value.failure.fault is Fault.TIMEOUT
    assert judged_as_if_nothing_had_happened(bench, write)


def _runs(pid: int) -> bool:
    """Whether a process is there and no zombie: the kernel ends a namespace's processes a moment after the signal."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_that_is_killed_is_a_crash_and_is_replaced(bench, write):
    bench.open(negating(write))
    pid = bench.replayer.process._pid
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 400
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(Failed) as caught:
        bench.call([torch.zeros(20)], [torch.zeros(20)])
    assert caught.value.failure.fault is Fault.CRASH
    with pytest.raises(InfrastructureError, match="open one first"):
        bench.again()
    assert judged_as_if_nothing_had_happened(bench, write)


@pytest.mark.parametrize("recursion", ["    deeper(x, y, n)", "    return deeper(x, y, n) + 1"])
def test_a_device_function_that_calls_itself_for_ever_is_a_failure(bench, write, recursion):
    text = "def entry(x, y, n, BLOCK: tl.constexpr):\n    deeper(x, y, n)\n"
    trace = negating(write, text)
    deeper, _ = write.kernel(f"def deeper(x, y, n):\n{recursion}", {})
    link = {"deeper": {"function": "deeper"}}
    entry = trace.functions["entry"].with_(names=trace.functions["entry"].names | link)
    functions = {"entry": entry, "deeper": deeper.with_(names=deeper.names | link)}
    bench.open(trace.with_(functions=functions))
    with pytest.raises(Failed) as caught:
        bench.call([torch.zeros(20)], [torch.zeros(20)])
    assert caught.value.failure.fault in (Fault.RUNTIME, Fault.CRASH)
    assert judged_as_if_nothing_had_happened(bench, write)


def test_what_a_kernel_raises_has_the_line_of_the_candidates_file(bench, write):
    text = "def wrong(x, y, n, BLOCK: tl.constexpr):\n    a = tl.arange(0, 16)\n    b = a + tl.arange(0, 32)\n"
    trace = negating(write, text)
    functions = {"wrong": trace.functions["wrong"].with_(line=40, indent=4)}
    bench.open(trace.with_(functions=functions))
    with pytest.raises(Failed) as caught:
        bench.call([torch.zeros(20)], [torch.zeros(20)])
    failure = caught.value.failure
    assert failure.fault is Fault.COMPILE  # Triton's compiler refuses shapes that do not fit, too
    assert (failure.where.line, failure.where.column, failure.where.text) == (
        42,
        8,
        "        b = a + tl.arange(0, 32)",
    )


def test_a_text_that_is_no_kernel_is_refused_and_the_process_lives(bench, write):
    assert judged_as_if_nothing_had_happened(bench, write)
    process = bench.replayer.process
    with pytest.raises(Failed) as caught:
        bench.open(
            negating(
                write, "def evil(x, y, n, BLOCK: tl.constexpr):\n    __import__('os')._exit(0)\n"
            )
        )
    assert caught.value.failure.fault in (Fault.CHEAT, Fault.COMPILE)
    assert judged_as_if_nothing_had_happened(bench, write)
    assert bench.replayer.process is process


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ({}, Fault.CHEAT),
        (
            {
                "outputs": [{"type": "Tensor", "shape": [-1, "x"]}],
                "aliases": [None],
                "count": 1,
                "copied": [True],
            },
            Fault.CHEAT,
        ),
        (
            {
                "outputs": [],
                "aliases": [None],
                "count": 0,
                "copied": [],
                "written_outside": "",
                "read_outside": "",
            },
            Fault.CHEAT,
        ),
        ({"failure": {"fault": "no such fault", "message": ""}}, Fault.CHEAT),
        ({"failure": 7}, Fault.CHEAT),
        ({"failure": {"fault": "mismatch", "message": "x\x1b[31m" * 10_000}}, Fault.MISMATCH),
    ],
)
def test_a_forged_reply_is_the_candidates_failure(bench, write, monkeypatch, reply, fault):
    bench.open(negating(write))
    process = bench.replayer.process
    monkeypatch.setattr(process, "receive", lambda seconds: {"nonce": sent[-1]["nonce"], **reply})
    sent: list[dict] = []
    send = process.send
    monkeypatch.setattr(
        process, "send", lambda message, fds=(): (sent.append(message), send(message, fds))
    )
    with pytest.raises(Failed) as caught:
        bench.call([torch.zeros(20)], [torch.zeros(20)])
    assert caught.value.failure.fault is fault
    assert fault is not Fault.CHEAT or caught.value.failure.cheat is Cheat.FORGERY
    assert len(caught.value.failure.message) < 1000
    assert "\x1b" not in caught.value.failure.message
    monkeypatch.undo()
    bench.replayer.close()
    assert judged_as_if_nothing_had_happened(bench, write)


def test_an_answer_to_something_else_is_forged(bench, write, monkeypatch):
    bench.open(negating(write))
    monkeypatch.setattr(bench.replayer.process, "receive", lambda seconds: {"nonce": "another"})
    with pytest.raises(Failed) as caught:
        bench.call([torch.zeros(20)], [torch.zeros(20)])
    assert caught.value.failure.cheat is Cheat.FORGERY
    monkeypatch.undo()
    assert judged_as_if_nothing_had_happened(bench, write)


def test_one_process_serves_many_candidates_and_keeps_no_more_memory_than_it_may(bench, write):
    assert judged_as_if_nothing_had_happened(bench, write)
    process = bench.replayer.process
    for _ in range(MAX_MAPPED_ALLOCATIONS + 10):
        assert judged_as_if_nothing_had_happened(bench, write)
    assert bench.replayer.process is process
    assert len(bench.replayer._mapped) <= MAX_MAPPED_ALLOCATIONS


def test_a_zygote_that_is_not_warmed_serves_as_well(write):
    from tests.tools.replaying.conftest import Bench

    with Zygote(ProcessKind.INTERPRET, spare=False) as cold:
        bench = Bench(cold)
        assert judged_as_if_nothing_had_happened(bench, write)
        bench.close()


def test_closing_twice_and_closing_unopened_is_safe(zygote):
    with Replayer("cpu", zygote) as replayer:
        replayer.close()
        replayer.close()

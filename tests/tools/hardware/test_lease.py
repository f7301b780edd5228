"""The lease of a GPU: who may measure on it, and that nobody keeps it who is gone."""

import contextlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from kernelwright.tools.hardware.lease import gpu_lease, lock_file
from kernelwright.tools.report import InfrastructureError

HOLD = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from kernelwright.tools.hardware.lease import gpu_lease
with gpu_lease("GPU-1/2"):
    print("held", flush=True)
    time.sleep(60)
"""


def most_at_once(enter) -> list[int]:
    """How many were inside, as each of four threads saw it when it came in."""
    inside, seen = [], []

    def hold() -> None:
        with enter():
            inside.append(1)
            seen.append(len(inside))
            time.sleep(0.05)
            inside.pop()

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def test_two_never_measure_on_one_gpu():
    assert most_at_once(lambda: gpu_lease("test-gpu-lease")) == [1, 1, 1, 1]


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
        with pytest.raises(
            InfrastructureError, match="another process"
        ):  # the door is shut: nobody comes in
            gpu_lease("test-gpu-shared", 0.2, lambda _: waiting.set(), shared=True).__enter__()
        assert waiting.is_set()
        assert order == []
    first.join()
    late()
    assert order == ["alone", "late"]


def test_who_shares_the_gpu_may_be_alone_for_a_while_and_the_others_wait_with_what_they_have():
    order, entered, ended = [], threading.Event(), threading.Event()

    def beside() -> None:
        with gpu_lease("test-gpu-timing", shared=True) as lease:
            entered.set()
            with lease.alone():
                order.append("beside")
        ended.set()

    with gpu_lease("test-gpu-timing", shared=True) as lease:
        with lease.alone():
            other = threading.Thread(target=beside)
            other.start()
            assert not entered.wait(0.2)  # it shares the GPU, and does not compute
            order.append("first")
        with pytest.raises(
            InfrastructureError, match="another process"
        ):  # who wants all of it waits for all to end
            gpu_lease("test-gpu-timing", 0.1).__enter__()
    assert ended.wait(60.0)
    other.join()
    assert order == ["first", "beside"]


def test_who_shares_the_gpu_may_take_it_whole_once_the_others_have_ended():
    order, beside = [], threading.Event()

    def other() -> None:
        with gpu_lease("test-gpu-whole", shared=True) as lease:
            beside.set()
            time.sleep(0.2)
            order.append("beside")
            lease.take_whole()
            order.append("last")

    with gpu_lease("test-gpu-whole", shared=True) as lease:
        thread = threading.Thread(target=other)
        thread.start()
        assert beside.wait(60.0)
        lease.take_whole()
        order.append("whole")
        with pytest.raises(InfrastructureError, match="another process"):
            gpu_lease("test-gpu-whole", 0.1, shared=True).__enter__()
        with lease.alone():
            lease.give_way()
        lease.take_whole()
        order.append("still")
    thread.join()
    assert order == ["beside", "whole", "still", "last"]


def test_two_who_share_and_time_at_once_do_it_one_after_the_other():
    @contextlib.contextmanager
    def timing():
        with gpu_lease("test-gpu-two", shared=True) as lease, lease.alone():
            yield

    assert most_at_once(timing) == [1, 1, 1, 1]


def test_who_computes_gives_way_to_whoever_waits_to_be_alone_and_to_nobody_else():
    waiting, order = threading.Event(), []

    def times() -> None:
        with gpu_lease("test-gpu-way", shared=True) as lease:
            waiting.set()
            with lease.alone():
                order.append("timed")

    with gpu_lease("test-gpu-way", shared=True) as lease:
        lease.give_way()  # nobody waits
        other = threading.Thread(target=times)
        other.start()
        assert waiting.wait(60.0)
        until = time.monotonic() + 60.0
        while not order and time.monotonic() < until:
            lease.give_way()
        order.append("went on")
    other.join()
    assert order == ["timed", "went on"]


def test_who_has_the_gpu_to_himself_is_alone_already():
    with gpu_lease("test-gpu-own") as lease, lease.alone():
        pass


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


def test_the_lease_of_a_gpu_lies_in_a_file_that_every_user_may_lock_and_says_when_it_waits(
    tmp_path, monkeypatch
):
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
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    assert holder.stdout.readline() == "held\n"
    with (
        pytest.raises(InfrastructureError, match="another process"),
        gpu_lease("GPU-1/2", 0.1, said.append),
    ):
        pass
    holder.kill()
    holder.wait()
    with gpu_lease("GPU-1/2", 5.0):
        pass
    assert said == ["waiting for the GPU: another process is measuring on it"]


def test_a_child_that_was_forked_meanwhile_does_not_keep_the_gpu():
    reader, writer = os.pipe()
    with gpu_lease("test-gpu-forked"):
        child = os.fork()
        if child == 0:
            os.read(reader, 1)
            os._exit(0)
    try:
        with gpu_lease("test-gpu-forked", 0.2):
            pass
    finally:
        os.write(writer, b"x")
        os.waitpid(child, 0)

"""Who computes on the GPU, as a verdict asks for it: beside others, alone for a while, giving way."""

import threading
import time
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest

from kernelwright.tools.hardware.memory_requests import requesting_memory
from kernelwright.tools.judging.turns import Turns
from kernelwright.tools.options import Lane
from kernelwright.tools.problem import Problem


def turns_on(gpu: str) -> Turns:
    return Turns(
        lambda lane: nullcontext(), lambda: SimpleNamespace(uuid=gpu, memory_bytes=1 << 30)
    )


@contextmanager
def at_work(turns: Turns, *, shared: bool = True):
    turns.begin()
    with turns.at(Lane.GPU, 60.0, lambda told: None, shared=shared):
        yield


def test_two_verdicts_of_two_processes_check_side_by_side_and_each_times_alone():
    one, other = turns_on("test-turns-1"), turns_on("test-turns-1")
    both, order = threading.Barrier(2, timeout=60.0), []

    def verdict(turns: Turns, name: str) -> None:
        with at_work(turns):
            both.wait()  # both are at work
            with turns.alone():
                order.append(f"{name} begins")
                time.sleep(0.05)
                order.append(f"{name} ends")

    threads = [
        threading.Thread(target=verdict, args=(t, n))
        for t, n in ((one, "first"), (other, "second"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = order[0].split()[0]
    second = "second" if first == "first" else "first"
    assert order == [f"{first} begins", f"{first} ends", f"{second} begins", f"{second} ends"]


def test_a_verdict_that_gives_way_lets_the_other_time_and_its_wait_is_no_time_of_its_own():
    one, other = turns_on("test-turns-2"), turns_on("test-turns-2")
    entered, timed = threading.Event(), threading.Event()

    def times() -> None:
        with at_work(other):
            entered.set()
            with other.alone():
                time.sleep(0.2)
                timed.set()

    with at_work(one):
        thread = threading.Thread(target=times)
        thread.start()
        assert entered.wait(60.0)
        until = time.monotonic() + 60.0
        while not timed.is_set() and time.monotonic() < until:
            one.give_way()
        assert timed.is_set()
        assert one.waited > 0.1
    thread.join()


def test_a_verdict_that_has_the_gpu_alone_need_not_ask_and_afterwards_there_is_nothing_to_give():
    turns = turns_on("test-turns-3")
    with at_work(turns, shared=False), turns.alone():
        turns.give_way()
    turns.give_way()
    with pytest.raises(AssertionError), turns.alone():
        pass


def problem_of(elements: int) -> Problem:
    return Problem(
        name="doubled",
        source=f"""
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x
def get_inputs():
    return [torch.randn({elements})]
def get_init_inputs():
    return []
""",
    )


def test_a_verdict_has_the_gpu_to_itself_from_where_its_problem_is_large_and_gives_memory_while_it_waits_for_that():
    one, other = turns_on("test-turns-3"), turns_on("test-turns-3")
    entered, given, whole = threading.Event(), threading.Event(), threading.Event()

    def large() -> None:
        with at_work(one):
            one.take_whole_for(problem_of(1 << 10))
            entered.set()
            one.take_whole_for(problem_of(1 << 24))
            whole.set()

    one.give_memory_by(lambda needed: given.set(), sharers=2)
    try:
        with at_work(other):
            thread = threading.Thread(target=large)
            thread.start()
            assert entered.wait(60.0)  # the small problem is judged beside the other's
            with requesting_memory("test-turns-3", 1):
                assert given.wait(60.0)
            assert not whole.is_set()
        thread.join()
        assert whole.is_set()
    finally:
        one.close()

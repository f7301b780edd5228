"""A kernel that ends a GPU's context is named, with its place among the launches: its last call is repeated in a fresh
process, a wait after every step.

The process is the real service on its own thread; the GPU is stood in for by a machine that tells what a kernel did
when it is waited for, and not before.
"""

from __future__ import annotations

import json
import queue
import threading
from typing import Any

import pytest

from kernelwright.tools.replaying.allocations import Allocations
from kernelwright.tools.replaying.gpu.one_by_one import OneByOne, count_launches
from kernelwright.tools.replaying.replayer import Replayer
from kernelwright.tools.replaying.service import Service
from kernelwright.tools.replaying.steps import Call
from kernelwright.tools.report import Failed, Failure, Fault
from kernelwright.tools.trace.trace import Choice, Launch, Trace, Traced

TEXT = "def {}(x, n, BLOCK: tl.constexpr):\n    pass"
ILLEGAL = "{} read or wrote an illegal address"


class Machine:
    """A GPU that the kernel `wild` ends."""

    def __init__(self) -> None:
        self.dead = False
        self.waits = 0

    def open(self, traced: Traced, binaries: Any) -> None:
        """Nothing is loaded."""

    def _made(self) -> Call:
        def launch(key: str, grid: Any, args: Any, table: Any) -> None:
            self.dead = self.dead or key == "wild"

        return Call(launch, Allocations(0xFF, 0, "cpu"), poison=0xFF)

    def call_of_setup(self) -> Call:
        return self._made()

    def call(self, replay: Any, call_name: str, *, poison: int, shuffle: int) -> Call:
        return self._made()

    def prepared(self) -> None:
        """Nothing changes hands."""

    def called(self, replay: Any, call_name: str) -> None:
        """Nothing is kept."""

    def finish(self, activity: str = "a kernel") -> None:
        self.waits += 1
        if self.dead:
            raise Failed(Failure(fault=Fault.OUT_OF_BOUNDS, message=ILLEGAL.format(activity)))

    def noted(self) -> dict[str, Any]:
        return {"written_outside": "", "read_outside": ""}

    def explained(self, error: BaseException, failure: Failure) -> tuple[Failure, bool]:
        return failure, self.dead

    def stopwatch(self, replay: Any, traced: Traced) -> Machine:
        return self

    def answer(self, message: Any, sets: Any) -> dict[str, Any]:
        """The clock's: here a block ends the context, whatever the kernels do."""
        self.dead = True
        self.finish()
        return {}


class Ends:
    """Both ends of a channel, and the process at the far one."""

    def __init__(self, log: list[dict[str, Any]]) -> None:
        self.log, self.machine = log, Machine()
        self._there: queue.Queue[str] = queue.Queue()
        self._back: queue.Queue[str] = queue.Queue()
        self.output = ""
        channel: Any = self
        self._thread = threading.Thread(
            target=Service(channel, "cpu", self.machine).answer, daemon=True
        )
        self._thread.start()

    # the judge's end
    def send(self, message: dict[str, Any], descriptors: Any = None) -> None:
        mine = descriptors is not None
        if mine:
            self.log.append(message)
        (self._there if mine else self._back).put(json.dumps(message))

    def kill(self) -> None:
        self.send({"do": "stop"}, ())
        self._thread.join()

    # both
    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        return json.loads((self._there if seconds is None else self._back).get(timeout=seconds))

    def waited(self) -> float:
        return 0.0

    def take_descriptors(self) -> list[int]:
        return []


class Started:
    """In the place of a zygote: what it has started."""

    def __init__(self) -> None:
        self.logs: list[list[dict[str, Any]]] = []
        self.processes: list[Ends] = []

    def start(self, entry: str, payload: Any) -> Ends:
        self.logs.append([])
        self.processes.append(Ends(self.logs[-1]))
        return self.processes[-1]


@pytest.fixture
def started():
    return Started()


@pytest.fixture
def replayer(started):
    with Replayer("cuda:0", started) as made:
        yield made


def steps(*kernels: str, of: int = 1) -> tuple[Launch, ...]:
    """Launches over tensor `of`, on the lines 10, 11 ..."""
    return tuple(
        Launch(kernel=name, grid=(1, 1, 1), args={"x": {"t": of}, "n": 8}, line=10 + place)
        for place, name in enumerate(kernels)
    )


def traced(write, **parts: Any) -> Traced:
    kernels = [
        write.kernel(TEXT.format(name), {"x": "*fp32", "n": "i32"}, BLOCK=8)
        for name in ("tame", "wild")
    ]
    return write.traced(Trace(**parts), *kernels)


def called(replayer: Replayer, **options: Any) -> Failure:
    with pytest.raises(Failed) as caught:
        replayer.call([], [], [], **options)
    return caught.value.failure


def test_the_launch_that_ended_the_context_is_named_with_its_number_and_its_line(
    replayer, started, write
):
    first = (write.empty(1, 8), *steps("tame", "tame", "wild", "tame"))
    replayer.open(traced(write, first=first, first_outputs=write.t(1)), 0, {}, seed=0, seconds=60)
    failure = called(replayer)
    assert failure.message == ILLEGAL.format("wild (launch 3 of 4)")
    assert failure.where is not None
    assert failure.where.line == 12
    assert [[m["do"] for m in log] for log in started.logs] == [["open", "call", "stop"]] * 2


def test_nothing_is_waited_for_and_nothing_repeated_where_no_kernel_ends_the_context(
    replayer, started, write
):
    first = (write.empty(1, 8), *steps("tame", "tame"))
    replayer.open(traced(write, first=first, first_outputs=write.t(1)), 0, {}, seed=0, seconds=60)
    replayer.call([], [], [])
    assert len(started.processes) == 1
    assert started.processes[0].machine.waits == 2  # the set-up, the call


def test_the_replayer_is_as_good_as_before_afterwards(replayer, started, write):
    for kernel in ("wild", "tame"):
        first = (write.empty(1, 8), *steps(kernel))
        replayer.open(
            traced(write, first=first, first_outputs=write.t(1)), 0, {}, seed=0, seconds=60
        )
        if kernel == "wild":
            called(replayer)
            assert replayer.process is None
    assert replayer.call([], [], []).count == 1
    assert len(started.processes) == 3


def test_a_launch_of_the_set_up_is_named(replayer, write):
    setup = (write.empty(5, 8), *steps("tame", "wild", of=5))
    first = (write.op("neg", write.t(5), out=6),)
    with pytest.raises(Failed) as caught:
        replayer.open(
            traced(write, setup=setup, first=first, first_outputs=write.t(6)),
            0,
            {},
            seed=0,
            seconds=60,
        )
    assert caught.value.failure.message == ILLEGAL.format("wild (launch 2 of the set-up)")


def test_a_launch_of_a_later_call_is_named_after_the_first_call_was_repeated(
    replayer, started, write
):
    parts = {
        "first": (write.empty(1, 8), *steps("tame")),
        "first_outputs": write.t(1),
        "later": (*steps("tame", "wild"), write.op("neg", write.t(1), out=2)),
        "later_outputs": write.t(2),
    }
    replayer.open(traced(write, **parts), 0, {}, seed=0, seconds=60)
    replayer.call([], [], [])
    assert called(replayer, call_name="later").message == ILLEGAL.format("wild (launch 2 of 2)")
    assert [m.get("which") for m in started.logs[1]] == [None, "first", "later", None]


def test_a_context_that_ends_only_while_it_is_timed_is_no_launch_s_fault(replayer, started, write):
    first = (write.empty(1, 8), *steps("tame"))
    replayer.open(traced(write, first=first, first_outputs=write.t(1)), 0, {}, seed=0, seconds=60)
    replayer.call([], [], [])
    with pytest.raises(Failed) as caught:
        replayer.ask({"do": "clock_block", "order": [0]}, seconds=60)
    assert (
        caught.value.failure.message
        == f"{ILLEGAL.format('a kernel')}; not when each step was waited for"
    )
    assert [m["do"] for m in started.logs[1]] == ["open", "call", "stop"]


def test_an_operator_is_named_whether_torch_or_the_judge_meets_its_error(write):
    told: list[str] = []
    around = OneByOne(traced(write), "2", told.append)
    with pytest.raises(RuntimeError), around(write.op("convolution", out=1)):
        raise RuntimeError("CUDA error")
    with around(write.op("neg", out=1)):
        pass
    assert told == ["aten.convolution.default", "aten.neg.default"]


def test_launches_of_the_alternative_that_is_taken_are_counted():
    choice = Choice(name="tuned", alternatives=(steps("tame"), steps("tame", "tame", "wild")))
    assert (
        count_launches((*steps("tame"), choice, choice), lambda number, count: number) == 1 + 1 + 3
    )

"""A verdict that ends its judge's GPU context costs itself alone (on a GPU: bench.service_gpu --assertion)."""

import threading

import pytest

from kernelwright.agent.judging.lanes import Lanes
from kernelwright.agent.judging.messages import VerdictError, VerdictRequest
from kernelwright.agent.judging.placed_judge import PlacedJudge
from kernelwright.agent.judging.placing import VerdictUnderWay
from kernelwright.agent.judging.pool import DeviceKind, JudgeEnded
from kernelwright.agent.judging.verdict_maker import DeviceWatch
from kernelwright.tools.options import Lane
from kernelwright.tools.problem import ProblemError


class QuietJudge(PlacedJudge):
    """A judge without a process: what a reply does to its verdicts is the common part of all judges."""

    def __init__(self):
        super().__init__("cuda:0", DeviceKind.CUDA, 4, lambda judge: None)
        self.was_ready, self.killed = True, threading.Event()

    def begin(self, ask: VerdictRequest, work: VerdictUnderWay) -> None:
        raise NotImplementedError

    def stop(self, number: int) -> None: ...

    def close(self) -> None: ...

    def _kill(self) -> None:
        for number in list(self._under_way):
            self._finish(number, self._ended_error())
        self.killed.set()

    def futures(self, count: int):
        from concurrent.futures import Future

        works = [VerdictUnderWay(Future(), lambda step: None) for _ in range(count)]
        for number, work in enumerate(works):
            self._count(number, work)
        return [work.future for work in works]


def test_whoever_comes_to_a_dead_device_is_told_and_the_culprit_is_known():
    dead = threading.Event()
    watch = DeviceWatch(Lanes(1, 2, gpu=True), dead.is_set)

    def assert_on_the_device() -> None:
        with watch(Lane.GPU):
            dead.set()
            raise ProblemError("device-side assert")

    def kill() -> None:
        with pytest.raises(ProblemError):
            assert_on_the_device()
        assert watch.is_dead_by_this_thread

    with watch(Lane.GPU):
        pass
    assert not watch.is_dead
    thread = threading.Thread(target=kill)
    thread.start()
    thread.join()
    assert watch.is_dead
    assert not watch.is_dead_by_this_thread
    with watch(Lane.CPU):
        pass
    with pytest.raises(JudgeEnded), watch(Lane.GPU):
        pass


def test_the_last_reply_of_a_judge_is_its_own_verdicts_and_the_others_are_begun_again():
    judge = QuietJudge()
    culprit, early, late = judge.futures(3)
    judge._take_reply(1, VerdictError(number=1, error="ended", message="dead"))
    assert isinstance(early.exception(0), JudgeEnded)
    assert judge.free == 0
    assert not culprit.done()
    judge._take_reply(
        0, VerdictError(number=0, error="problem", message="the reference ...", is_last=True)
    )
    assert isinstance(culprit.exception(0), ProblemError)
    assert judge.killed.wait(10)
    assert isinstance(late.exception(10), JudgeEnded)

"""TUNE in a batch: one tuning at a time, and Ctrl-C stops it at its next configuration."""

import threading

import pytest

from kernelwright.agent.batch.tuning_lane import TuningLane
from kernelwright.agent.judging.lanes import Gate, Lanes


class Steps:
    """A tuner that says three steps; `at_step` is called before each."""

    def __init__(self, at_step):
        self.at_step, self.said = at_step, []

    def tuned(self, problem, parent, spent, say):
        for number in range(3):
            self.at_step(number)
            say(f"step {number}")
            self.said.append(number)
        return "answer"


def test_two_runs_are_tuned_one_after_the_other():
    lock, order = threading.Lock(), []

    def at_step(number):
        with lock:
            order.append((threading.get_ident(), number))

    lane = TuningLane(Steps(at_step), Gate("tuning", 1))
    threads = [
        threading.Thread(target=lane.tuned, args=(None, None, None, lambda doing: None))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [number for _, number in order] == [0, 1, 2, 0, 1, 2]
    assert len({who for who, _ in order[:3]}) == 1


def test_a_closed_lane_stops_a_tuning_at_its_next_configuration():
    gate = Gate("tuning", 1)
    steps = Steps(lambda number: gate.close(KeyboardInterrupt()) if number == 1 else None)
    with pytest.raises(KeyboardInterrupt):
        TuningLane(steps, gate).tuned(None, None, None, lambda doing: None)
    assert steps.said == [0]


def test_a_batch_that_tunes_has_a_lane_for_it_that_closes_with_the_others():
    assert Lanes(1, 1, gpu=True).tuning is None
    lanes = Lanes(1, 1, gpu=True, tunes=True)
    assert [gate.name for gate in lanes.gates] == ["policy", "CPU rungs", "GPU", "tuning"]
    lanes.close(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        lanes.tuning.check()

"""A step of a verdict that runs beside others, or in its place if nobody started it."""

from __future__ import annotations

import threading

import pytest

from kernelwright.tools.evaluation.background_step import BackgroundStep, StepStopped


def test_a_step_that_was_started_runs_in_a_thread_of_its_own():
    began = threading.Event()

    def step(progress):
        began.set()
        return threading.get_ident()

    with BackgroundStep(step) as background:
        background.start()
        assert began.wait(10.0)
        assert background.result(print) != threading.get_ident()


def test_a_step_that_was_not_started_runs_where_its_result_is_asked_for():
    told = []

    def step(progress):
        progress("halfway")
        return threading.get_ident()

    with BackgroundStep(step) as background:
        assert background.result(told.append) == threading.get_ident()
    assert told == ["halfway"]


def test_a_step_that_nobody_waits_for_ends_at_its_next_progress():
    left, ended = threading.Event(), []

    def step(progress):
        assert left.wait(10.0)
        try:
            progress("too late")
        except StepStopped:
            ended.append(True)
            raise

    with BackgroundStep(step) as background:
        background.start()
    left.set()
    with pytest.raises(StepStopped):
        background.result(print)
    assert ended == [True]


def test_an_error_of_a_step_is_that_of_its_result():
    def step(progress):
        raise ValueError("not today")

    with BackgroundStep(step) as background:
        background.start()
        with pytest.raises(ValueError, match="not today"):
            background.result(print)

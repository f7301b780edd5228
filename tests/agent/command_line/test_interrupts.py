"""Ctrl-C is held until a moment that can bear it, and a second one is not held where somebody only asked to stop."""

import os
import signal

import pytest

from kernelwright.agent.interrupts import defer_interrupts, stop_on_interrupt


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_however_often_it_comes_it_waits_for_the_end_of_the_block():
    seen: list[str] = []

    def twice() -> None:
        with defer_interrupts():
            interrupt()
            interrupt()
            seen.append("whole")

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert seen == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_first_asks_and_the_second_stops_at_once():
    seen: list[str] = []

    def twice() -> None:
        with stop_on_interrupt(lambda: seen.append("asked")):
            interrupt()
            seen.append("goes on")
            interrupt()
            seen.append("never")

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert seen == ["asked", "goes on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

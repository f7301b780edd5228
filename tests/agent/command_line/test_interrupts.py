"""Ctrl-C is held until a moment that can bear it, and a second one is not held where somebody only asked to stop."""

import hashlib
import io
import os
import signal
import sys
import threading
import time

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


class TimedStream(io.StringIO):
    """Remembers when something was first written to it."""

    written_at = 0.0

    def write(self, text: str) -> int:
        self.written_at = self.written_at or time.monotonic()
        return super().write(text)


def test_it_is_said_at_once_while_the_main_thread_is_inside_of_one_long_call(monkeypatch):
    """Python calls its handlers when the call has returned."""
    stream = TimedStream()
    monkeypatch.setattr(sys, "stderr", stream)
    asked_at: list[float] = []

    def one_long_call() -> None:
        with stop_on_interrupt(lambda: asked_at.append(time.monotonic()), "stopping after this step"):
            threading.Timer(0.05, interrupt).start()
            hashlib.pbkdf2_hmac("sha256", b"a step", b"of a training", 600_000)

    with pytest.raises(KeyboardInterrupt):
        one_long_call()
    assert stream.getvalue() == "stopping after this step\n"
    assert stream.written_at < asked_at[0]


def test_what_is_held_back_says_so(capsys):
    with pytest.raises(KeyboardInterrupt), defer_interrupts():
        interrupt()
    assert capsys.readouterr().err == "stopping as soon as what has just begun is whole\n"

"""A signal to stop is held until a moment that can bear it; a second one is not, where somebody only asked to stop."""

import hashlib
import io
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from kernelwright.agent.runtime.interrupts import ECHO_SECONDS, defer_interrupts, stop_on_interrupt


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
            time.sleep(2 * ECHO_SECONDS)
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
        with stop_on_interrupt(
            lambda: asked_at.append(time.monotonic()), "stopping after this step"
        ):
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


PAUSABLE = """
import sys, time
from kernelwright.agent.runtime.errors import run
from kernelwright.agent.runtime.interrupts import PAUSING, announce_stops, stop_on_interrupt

def command(args, **_):
    with announce_stops(PAUSING):
        if "waits" in args:
            with stop_on_interrupt(lambda: print("asked", flush=True)):
                print("begun", flush=True)
                deadline = time.monotonic() + float(args[1])
                while time.monotonic() < deadline:
                    time.sleep(0.05)
        print("begun", flush=True)
        if "stuck" in args:
            import hashlib
            hashlib.pbkdf2_hmac("sha256", b"one call", b"of many minutes", 2 * 10**9)
        time.sleep(600)

run(command, "agent", sys.argv[1:])
"""


def heed_signals():
    """Undoes what `nohup` and shells in the background hand down: signals that a command ignores stay ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def started(*words):
    process = subprocess.Popen(
        [sys.executable, "-c", PAUSABLE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_signals,
    )  # fmt: skip
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=str,
)
def test_each_signal_that_asks_to_stop_pauses_and_the_status_names_it(number, status):
    process = started()
    process.send_signal(number)
    _, said = process.communicate(timeout=300)
    assert (process.returncode, said) == (
        status,
        "pausing; the same command goes on from here\nagent: interrupted\n",
    )


def test_an_echo_of_the_first_signal_does_not_end_what_it_asked_to_finish():
    """`timeout` signals the process, then its group."""
    process = started("waits", "2")
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
        time.sleep(ECHO_SECONDS / 10)
    out, _ = process.communicate(timeout=300)
    assert (process.returncode, out) == (143, "asked\n")


def test_a_second_signal_ends_at_once_what_the_first_one_let_finish():
    process = started("waits", "500")
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "asked\n"
    time.sleep(2 * ECHO_SECONDS)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=100)
    assert process.returncode == 143


@pytest.mark.slow
def test_a_second_signal_ends_a_process_that_is_inside_of_one_long_call():
    process = started("stuck")
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    time.sleep(2 * ECHO_SECONDS)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=100)
    assert (process.returncode, said) == (143, "pausing; the same command goes on from here\n")


def test_a_signal_that_is_ignored_stays_ignored():
    """`nohup` ignores SIGHUP, and a shell ignores SIGINT for what it starts in the background."""
    text = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + PAUSABLE
    command = [sys.executable, "-c", text]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGHUP)
    time.sleep(1.0)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 143


def test_a_fork_of_the_command_dies_by_signals_and_tells_the_command_nothing():
    text = PAUSABLE.replace(
        "        time.sleep(600)\n",
        "        import os, signal\n"
        "        if (pid := os.fork()) == 0:\n"
        "            time.sleep(600)\n"
        "            os._exit(0)\n"
        "        os.kill(pid, signal.SIGTERM)\n"
        "        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\n",
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "begun\n-15\n", "")

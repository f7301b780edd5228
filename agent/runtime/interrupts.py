"""Signals that ask a command to stop: Ctrl-C, SIGTERM of a batch scheduler, SIGHUP of a terminal that was closed.

`listen_for_stops` surrounds a whole command: each of the three raises KeyboardInterrupt in the main thread.
Inside of it a block chooses when it comes: `defer_interrupts` after the block, `stop_on_interrupt` once the block has
ended by itself. `announce_stops` names what is printed at the first signal.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C; what batch schedulers, `timeout`, containers and systemd send; the end of a terminal or of an ssh session."""
PAUSING = "pausing; the same command goes on from here"
"""The message of a command that keeps what it has done, at the first signal."""
STOPPING_AFTER_STEP = "stopping after this step; Ctrl-C again stops at once, at the last checkpoint"
"""The message of a training at the first signal: a step may take a minute."""
STOPPING_SOON = "stopping as soon as what has just begun is whole"
"""The message at the first signal where it is held back: the import of torch takes seconds."""
ECHO_SECONDS = 0.5
"""A signal so soon after another one is its echo: `timeout` signals a process and then its group, systemd sends SIGHUP
after SIGTERM, and make and npm repeat Ctrl-C.
"""
LAST_SECONDS = 5.0
"""Seconds after the second signal at which a process ends that is still there: one call into a library may take
minutes, and Python calls no handler meanwhile.
"""


class _Stops:
    """The signals that this command has received. One per process, as signal handlers are."""

    def __init__(self, active: bool = False) -> None:
        """active: a command listens, and this is no library."""
        self.active = active
        self.first: int | None = None
        """The number of the first signal."""
        self._counted_at = float("-inf")
        self._announced = threading.Lock()

    def announce(self) -> None:
        """Prints the message of the innermost block, where none has been printed yet."""
        if _messages and self._announced.acquire(blocking=False):
            print(_messages[-1], file=sys.stderr, flush=True)

    def is_echo(self) -> bool:
        """Whether a signal that counted came a moment ago; else this one counts."""
        now = time.monotonic()
        if now - self._counted_at < ECHO_SECONDS:
            return True
        self._counted_at = now
        return False


_stops = _Stops()
_messages: list[str] = []
"""Messages for the first signal, of the blocks that are entered, the innermost last."""


def exit_status_of_stop() -> int:
    """Returns 128 and the number of the signal that stopped the command, as shells do: 130 for Ctrl-C, 143 for
    SIGTERM, 129 for SIGHUP.
    """
    return 128 + (_stops.first or signal.SIGINT)


def ignore_stops() -> None:
    """Ignores further signals: the command is at its end. A second one still ends the process after LAST_SECONDS."""
    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is _raise_interrupt:
                signal.signal(number, _do_nothing)


def _do_nothing(number: int, frame: Any) -> None: ...


def stop_was_asked() -> bool:
    """Whether a signal has asked the command to stop that runs in this process; False where this is a library."""
    return _stops.active and _stops.first is not None


@contextmanager
def listen_for_stops() -> Iterator[None]:
    """Has each of STOP_SIGNALS raise KeyboardInterrupt, until the block ends.

    A signal that is ignored stays so (`nohup`). After a second one the process ends within LAST_SECONDS, whatever it
    is doing. Main thread only; elsewhere nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _begin_anew(active=True)
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    wanted = [number for number in STOP_SIGNALS if signal.getsignal(number) in defaults]
    before = {number: signal.signal(number, _raise_interrupt) for number in wanted}
    try:
        with _listener(end_after_second=True):
            yield
    finally:
        _begin_anew()
        for number, handler in before.items():
            signal.signal(number, handler)


def _begin_anew(active: bool = False) -> None:
    global _stops
    _stops = _Stops(active)


def _raise_interrupt(number: int, frame: Any) -> None:
    if _stops.is_echo():
        return
    _stops.first = _stops.first or number
    raise KeyboardInterrupt


@contextmanager
def announce_stops(message: str) -> Iterator[None]:
    """Prints `message` on stderr at the first signal inside the block, at once."""
    _messages.append(message)
    try:
        yield
    finally:
        if _stops.first is not None:
            _stops.announce()
        _messages.pop()


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Holds signals back until the block is over: torch aborts the whole process when one comes in the middle of its
    import. In other threads they never come.
    """
    with _handle_interrupts(lambda first: None, STOPPING_SOON):
        yield


@contextmanager
def stop_on_interrupt(ask: Callable[[], None], says: str = "") -> Iterator[None]:
    """The first signal calls `ask` and `says` so on stderr, and KeyboardInterrupt comes when the block has ended; a
    second one stops at once. Main thread only; elsewhere nothing is changed.
    """

    def at(first: bool) -> None:
        if not first:
            raise KeyboardInterrupt
        ask()

    with _handle_interrupts(at, says):
        yield


def is_stop_handled_above() -> bool:
    """Whether a block that is entered already decides when KeyboardInterrupt comes."""
    raising = (signal.default_int_handler, _raise_interrupt)
    return not any(signal.getsignal(number) in raising for number in STOP_SIGNALS)


@contextmanager
def _handle_interrupts(at: Callable[[bool], None], says: str) -> Iterator[None]:
    """`at` is called at each signal, with whether it is the first; KeyboardInterrupt comes after the block.

    A signal that nobody has asked for, such as SIGTERM where this is used as a library, is left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _listening:
        _begin_anew()
    caught: list[int] = []

    def catch(number: int, frame: Any) -> None:
        if _stops.is_echo() and (caught or _stops.active):
            return
        _stops.first = _stops.first or number
        caught.append(number)
        at(len(caught) == 1)

    heard = [number for number in STOP_SIGNALS if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, catch) for number in heard}
    try:
        with announce_stops(says) if says else nullcontext(), _listener():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        raise KeyboardInterrupt


# ---------------------------------------------------------------- at once
_listening = False
_at_fork_registered = False


@contextmanager
def _listener(end_after_second: bool = False) -> Iterator[None]:
    """A thread prints the message at the first signal, and may end the process some seconds after the second.

    Python calls a handler only between two instructions of the main thread, and a backward pass on a CPU is one
    instruction of many seconds; the signal's number is written to the wake-up descriptor at once.
    """
    global _listening
    if _listening:
        yield
        return
    _deafen_forks()
    heard, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    before = signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
    last = threading.Timer(LAST_SECONDS, lambda: os._exit(exit_status_of_stop()))
    last.daemon = True
    thread = threading.Thread(
        target=_listen,
        args=(heard, last.start if end_after_second else None),
        name="hears signals",
        daemon=True,
    )
    try:
        thread.start()
        _listening = True
        yield
    finally:
        _listening = False
        _restore_wakeup(before)
        wakeup.close()
        if thread.ident is not None:
            thread.join()
        heard.close()
        last.cancel()


def _restore_wakeup(descriptor: int) -> None:
    """Gives signals their earlier wake-up descriptor back; none where its owner has closed it meanwhile."""
    try:
        signal.set_wakeup_fd(descriptor)
    except (OSError, ValueError):
        signal.set_wakeup_fd(-1)


def _listen(heard: socket.socket, at_second: Callable[[], None] | None) -> None:
    """Reads the numbers of signals until the other end of the socket is closed."""
    count, counted_at = 0, float("-inf")
    while number := heard.recv(1):
        now = time.monotonic()
        if number[0] not in STOP_SIGNALS or now - counted_at < ECHO_SECONDS:
            continue
        count, counted_at = count + 1, now
        if count == 1:
            # The handler comes too late where the main thread is inside of one long call.
            _stops.first = _stops.first or number[0]
            _stops.announce()
        if count == 2 and at_second is not None:
            at_second()


def _deafen_forks() -> None:
    """Makes forks of this process die by signals as other processes do, and tell this command nothing.

    A fork shares handlers and the wake-up descriptor. Stop signals are held back from before the fork until the child
    has dropped both: one that came between would raise KeyboardInterrupt inside a hook, where Python ignores it.
    """
    global _at_fork_registered
    if not _at_fork_registered:
        os.register_at_fork(
            before=_hold_signals, after_in_parent=_release_signals, after_in_child=_reset_in_child
        )
        _at_fork_registered = True


_held = threading.local()


def _hold_signals() -> None:
    _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.mask)


def _reset_in_child() -> None:
    if _listening:
        signal.set_wakeup_fd(-1)
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is _raise_interrupt:
                signal.signal(
                    number,
                    signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL,
                )
    _release_signals()

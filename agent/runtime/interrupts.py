"""Signals that ask a command to stop: Ctrl-C, SIGTERM of a batch scheduler, SIGHUP of a closed
terminal.

`listen_for_stops` surrounds a whole command: each of the three signals raises KeyboardInterrupt
in the main thread. Inside, a block chooses when the exception comes: `defer_interrupts` raises it
after the block, `stop_on_interrupt` once the block has ended by itself. `announce_stops` sets the
message that is printed at the first signal.
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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C; the signal of batch schedulers, `timeout`, containers and systemd; the end of a
terminal or of an ssh session.
"""
PAUSING = "pausing; the same command goes on from here"
"""Message at the first signal of a command that keeps its results."""
STOPPING_AFTER_STEP = "stopping after this step; Ctrl-C again stops at once, at the last checkpoint"
"""Message at the first signal of a training: a step may take a minute."""
STOPPING_SOON = "stopping as soon as what has just begun is whole"
"""Message at the first signal if it is deferred: the import of torch takes seconds."""
ECHO_SECONDS = 0.5
"""Seconds after a signal in which another signal is its echo: `timeout` signals a process and
then its group, systemd sends SIGHUP after SIGTERM, and make and npm repeat Ctrl-C.
"""
LAST_SECONDS = 5.0
"""Seconds between the second signal and the end of a process that still runs: a call into a
library may take minutes, and Python calls no handler meanwhile.
"""


class _Stops:
    """The signals that this command has received. One instance per process, as signal handlers
    are per process.
    """

    def __init__(self, active: bool = False) -> None:
        """active: whether a command listens (False: used as a library)."""
        self.active = active
        self.first: int | None = None
        """Number of the first signal."""
        self._counted_at = float("-inf")
        self._announced = threading.Lock()

    def announce(self) -> None:
        """Prints the message of the innermost block, once."""
        if _messages and self._announced.acquire(blocking=False):
            print(_messages[-1], file=sys.stderr, flush=True)

    def is_echo(self) -> bool:
        """Returns whether a signal was counted a moment ago; otherwise counts this signal."""
        now = time.monotonic()
        if now - self._counted_at < ECHO_SECONDS:
            return True
        self._counted_at = now
        return False


_stops = _Stops()
_messages: list[str] = []
"""Messages for the first signal of the entered blocks, the innermost last."""


def exit_status_of_stop() -> int:
    """Returns 128 and the number of the signal that stopped the command, as shells do: 130 for
    Ctrl-C, 143 for SIGTERM, 129 for SIGHUP.
    """
    return 128 + (_stops.first or signal.SIGINT)


def ignore_stops() -> None:
    """Ignores further signals at the end of a command. A second signal still ends the process
    after LAST_SECONDS.
    """
    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is _raise_interrupt:
                signal.signal(number, _do_nothing)


def _do_nothing(number: int, frame: FrameType | None) -> None: ...


def stop_was_asked() -> bool:
    """Returns whether a signal has asked the command of this process to stop; False in a library."""
    return _stops.active and _stops.first is not None


@contextmanager
def listen_for_stops() -> Iterator[None]:
    """Makes each of STOP_SIGNALS raise KeyboardInterrupt, until the block ends.

    An ignored signal stays ignored (`nohup`). After a second signal the process ends within
    LAST_SECONDS in any case. Main thread only; elsewhere nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _begin_anew(active=True)
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    replaced_signals = [number for number in STOP_SIGNALS if signal.getsignal(number) in defaults]
    previous_handlers = {
        number: signal.signal(number, _raise_interrupt) for number in replaced_signals
    }
    try:
        with _listener(end_after_second=True):
            yield
    finally:
        _begin_anew()
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _begin_anew(active: bool = False) -> None:
    global _stops
    _stops = _Stops(active)


def _raise_interrupt(number: int, frame: FrameType | None) -> None:
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
    """Defers signals until the block is over: torch aborts the process if a signal arrives during
    its import. Other threads receive no signals.
    """
    with _handle_interrupts(lambda first: None, STOPPING_SOON):
        yield


@contextmanager
def stop_on_interrupt(ask: Callable[[], None], says: str = "") -> Iterator[None]:
    """Calls `ask` and prints `says` at the first signal; raises KeyboardInterrupt after the
    block. A second signal raises at once. Main thread only; elsewhere nothing is changed.
    """

    def on_signal(first: bool) -> None:
        if not first:
            raise KeyboardInterrupt
        ask()

    with _handle_interrupts(on_signal, says):
        yield


def is_stop_handled_above() -> bool:
    """Returns whether a surrounding block already decides when KeyboardInterrupt comes."""
    raising = (signal.default_int_handler, _raise_interrupt)
    return not any(signal.getsignal(number) in raising for number in STOP_SIGNALS)


@contextmanager
def _handle_interrupts(on_signal: Callable[[bool], None], says: str) -> Iterator[None]:
    """Calls `on_signal` at each signal, with whether it is the first; raises KeyboardInterrupt
    after the block.

    A signal without a Python handler, such as SIGTERM when used as a library, is left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _listening:
        _begin_anew()
    caught: list[int] = []

    def catch(number: int, frame: FrameType | None) -> None:
        if _stops.is_echo() and (caught or _stops.active):
            return
        _stops.first = _stops.first or number
        caught.append(number)
        on_signal(len(caught) == 1)

    # An ignored signal has no callable handler and stays ignored.
    handled_signals = [number for number in STOP_SIGNALS if callable(signal.getsignal(number))]
    previous_handlers = {number: signal.signal(number, catch) for number in handled_signals}
    try:
        with announce_stops(says) if says else nullcontext(), _listener():
            yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
    if caught:
        raise KeyboardInterrupt


# ---------------------------------------------------------------- at once
_listening = False
_at_fork_registered = False


@contextmanager
def _listener(end_after_second: bool = False) -> Iterator[None]:
    """Starts a thread that prints the message at the first signal, and may end the process some
    seconds after the second.

    Python calls a handler only between two instructions of the main thread, and a backward pass
    on a CPU is a single instruction of many seconds; the signal's number is written to the
    wake-up descriptor at once.
    """
    global _listening
    if _listening:
        yield
        return
    # Python writes the number of each signal to the sender; the thread reads the receiver.
    _deafen_forks()
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    previous_descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    end_timer = threading.Timer(LAST_SECONDS, lambda: os._exit(exit_status_of_stop()))
    end_timer.daemon = True
    thread = threading.Thread(
        target=_listen,
        args=(receiver, end_timer.start if end_after_second else None),
        name="hears signals",
        daemon=True,
    )
    try:
        thread.start()
        _listening = True
        yield
    finally:
        _listening = False
        _restore_wakeup(previous_descriptor)
        sender.close()
        if thread.ident is not None:
            thread.join()
        receiver.close()
        end_timer.cancel()


def _restore_wakeup(descriptor: int) -> None:
    """Restores the earlier wake-up descriptor of signals; none if its owner has closed it
    meanwhile.
    """
    try:
        signal.set_wakeup_fd(descriptor)
    except (OSError, ValueError):
        signal.set_wakeup_fd(-1)


def _listen(receiver: socket.socket, on_second_signal: Callable[[], None] | None) -> None:
    """Reads the numbers of signals until the other end of the socket is closed."""
    count, counted_at = 0, float("-inf")
    while number := receiver.recv(1):
        now = time.monotonic()
        if number[0] not in STOP_SIGNALS or now - counted_at < ECHO_SECONDS:
            continue
        count, counted_at = count + 1, now
        if count == 1:
            # The handler comes too late where the main thread is inside of one long call.
            _stops.first = _stops.first or number[0]
            _stops.announce()
        if count == 2 and on_second_signal is not None:
            on_second_signal()


def _deafen_forks() -> None:
    """Makes forks of this process die by signals as other processes do, without a message to this
    command.

    A fork shares handlers and the wake-up descriptor. Stop signals are blocked from before the
    fork until the child has dropped both: a signal in between would raise KeyboardInterrupt
    inside a hook, where Python ignores it.
    """
    global _at_fork_registered
    if not _at_fork_registered:
        # Hooks cannot be removed: registered once per process.
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
                is_ctrl_c = number == signal.SIGINT
                signal.signal(number, signal.default_int_handler if is_ctrl_c else signal.SIG_DFL)
    _release_signals()

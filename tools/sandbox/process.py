"""Trusted side of a candidate's process, which is killed at a deadline kept here."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.tools.report import InfrastructureError, Isolation, clean_text
from kernelwright.tools.sandbox import run_queue
from kernelwright.tools.sandbox.channel import (
    MAX_MESSAGE_BYTES,
    BadMessage,
    Channel,
    ChannelClosed,
    ChannelTimeout,
    Message,
    channel_pair,
)
from kernelwright.tools.sandbox.inside.usage_watch import Bound
from kernelwright.tools.sandbox.isolation.descendants import descendants
from kernelwright.tools.sandbox.limits import Limits

if TYPE_CHECKING:
    from kernelwright.tools.sandbox.zygote import Zygote

READY_SECONDS = 60.0
EXIT_SECONDS = 3.0
"""Seconds which a process may take to exit. It closes its channel first and its CUDA context
last, which takes over a second on a GPU with many processes.
"""
MAX_END_SECONDS = 60.0
"""Seconds until nothing of a killed candidate is left: two hundred processes on a busy machine take several."""
MAX_OUTPUT_CHARACTERS = 8000
"""Maximum length of a candidate's output, in characters and in bytes of UTF-8."""
READING_SECONDS = 5.0
"""Shortest time in seconds for the rest of a message of which a part has arrived."""
QUICK_SECONDS = 0.05
"""Answer time below which the process's waiting time for a processor is not read."""
DISCARD_PAUSE_SECONDS = 0.001
"""Pause in seconds after each discarded piece of output: endless output costs little."""


class ProcessDied(Exception):
    """Raised if the candidate's process ended without an answer.

    `limit` names the exceeded bound, if any: "held more than 8 GiB of memory".
    """

    def __init__(self, exit_code: int | None, signal_number: int | None, limit: str = "") -> None:
        self.exit_code = exit_code
        self.signal_number = signal_number
        self.limit = limit
        super().__init__(self.describe())

    def describe(self) -> str:
        """Describes in a clause how the process ended, if known."""
        if self.limit:
            return f"the process was ended because it {self.limit}"
        if self.signal_number is not None:
            try:
                return f"the process was killed by {signal.Signals(self.signal_number).name}"
            except ValueError:
                return f"the process was killed by signal {self.signal_number}"
        if self.exit_code is None:
            return "the process was ended from outside, and nothing says how"
        return f"the process ended by itself with exit code {self.exit_code}"


class ProcessTimedOut(Exception):
    """No answer arrived before the deadline."""


class Process:
    """Process of a candidate. A context manager: leaving the block kills the process and all its
    descendants.
    """

    def __init__(self, zygote: Zygote) -> None:
        self._limits = zygote.limits
        self.isolation = Isolation()
        self._collected = bytearray()
        self._ready = False
        self._end: threading.Thread | None = None
        self._inside: list[int] = []
        """Processes inside, as listed at the first question for their waiting time."""
        self._killed = threading.Lock()
        """Acquired by the thread which kills, and never released."""
        zygote.wait_warm()
        self._scratch = Path(tempfile.mkdtemp(prefix="candidate-", dir=zygote.folder))
        self._group = zygote.group()
        try:
            self._channel, output, status = self._ask(zygote)
        except BaseException:
            self._remove_folders()
            raise
        self._status_pipe = os.fdopen(status, "r")
        self._drain = threading.Thread(target=self._collect, args=(output,), daemon=True)
        self._drain.start()
        self._pid = self._read_pid()
        self._handle = _open_handle(self._pid)

    def _ask(self, zygote: Zygote) -> tuple[Channel, int, int]:
        """Requests a fork from the zygote; returns this end of the channel, and the pipes for
        output and end.
        """
        channel, theirs = channel_pair()
        output_read, output_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            descriptors = [theirs.fileno(), output_write, status_write]
            zygote.request(self._scratch, descriptors, self._group.folders if self._group else ())
        except BaseException:
            channel.close()
            os.close(output_read)
            os.close(status_read)
            raise
        finally:
            theirs.close()
            os.close(output_write)
            os.close(status_write)
        return channel, output_read, status_read

    @property
    def scratch(self) -> Path:
        """Returns the only folder writable for the candidate."""
        return self._scratch

    @property
    def output(self) -> str:
        """Printed text, without control characters, at most MAX_OUTPUT_CHARACTERS bytes of UTF-8,
        and therefore at most three times as long in any JSON.
        """
        text = clean_text(bytes(self._collected).decode("utf-8", "replace"), MAX_OUTPUT_CHARACTERS)
        longest = MAX_OUTPUT_CHARACTERS
        while len(text.encode()) > MAX_OUTPUT_CHARACTERS:
            longest //= 2
            text = clean_text(bytes(self._collected).decode("utf-8", "replace"), longest)
        return text

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Returns once the walls stand (and, on a GPU, the context exists). Raises InfrastructureError."""
        if self._ready:
            return
        try:
            layers = self._channel.receive(time.monotonic() + seconds)["ready"]
        except (ChannelClosed, ChannelTimeout, BadMessage, KeyError) as error:
            self._drain.join(1.0)
            raise InfrastructureError(
                f"a candidate's process could not be set up: {self.output[-500:] or error}"
            ) from error
        self.isolation = Isolation(active=tuple(layers["active"]), missing=tuple(layers["missing"]))
        self._ready = True

    def start(self, entry: str, payload: Message, fds: Sequence[int] = ()) -> None:
        """Calls `entry` ("package.module:function") in the process as soon as it is ready. Raises
        InfrastructureError if the process does not start.
        """
        self.wait_ready()
        self.send({"entry": entry, "payload": payload}, fds)

    def send(
        self, message: Message, fds: Sequence[int] = (), *, seconds: float | None = None
    ) -> None:
        """Sends a message. Raises ProcessDied, and ProcessTimedOut if not received within
        `seconds`.
        """
        try:
            self._channel.send(
                message, fds, None if seconds is None else time.monotonic() + seconds
            )
        except ChannelTimeout as error:
            raise ProcessTimedOut(f"a message was not taken within {seconds:g} s") from error
        except ChannelClosed as error:
            raise self._death() from error

    def receive(self, seconds: float, *, longest: int = MAX_MESSAGE_BYTES) -> Message:
        """Returns the next message, of at most `longest` bytes. Time spent waiting for a
        processor does not count, up to MAX_QUEUE_SHARE_OF_LIMIT of `seconds`.

        Raises ProcessDied, ProcessTimedOut, and BadMessage for malformed data.
        """
        self._channel.longest = longest
        try:
            return self._channel.receive(self._deadline(seconds))
        except ChannelTimeout as error:
            raise ProcessTimedOut(f"no answer within {seconds:g} s") from error
        except ChannelClosed as error:
            raise self._death() from error

    def waited(self) -> float:
        """Returns the seconds for which the process waited for a processor so far, as far as the
        kernel reports them.
        """
        if not self._inside:
            self._inside = descendants(self._pid)
        return run_queue.run_queue_seconds(self._inside)

    def _deadline(self, seconds: float) -> float:
        """Waits until data arrives, or until the process has had a processor for `seconds`;
        returns the time.monotonic() until which the message must be read.
        """
        begun = time.monotonic()
        limit = begun + seconds
        readable = select.poll()
        readable.register(self._channel, select.POLLIN | select.POLLHUP)
        if readable.poll(min(seconds, QUICK_SECONDS) * 1000):
            return max(limit, time.monotonic() + READING_SECONDS)
        before = self.waited() if self._inside else 0.0
        while not readable.poll(max(limit - time.monotonic(), 0.0) * 1000):
            extended = (
                begun
                + seconds
                + min(self.waited() - before, run_queue.MAX_QUEUE_SHARE_OF_LIMIT * seconds)
            )
            if extended < time.monotonic() + 0.001:
                return limit
            limit = extended
        return max(begun + seconds, time.monotonic() + READING_SECONDS)

    def _death(self) -> ProcessDied:
        if self._closed_but_alive():
            self._send_kill()
        word, _, value = self._status_pipe.readline().strip().partition(" ")
        if word == "limit":
            return ProcessDied(None, None, _went_over(Bound(value), self._limits))
        if self._group and self._group.memory_ran_out():
            return ProcessDied(None, None, _went_over(Bound.MEMORY, self._limits))
        if not value:
            return ProcessDied(None, None)
        return ProcessDied(int(value), None) if word == "exit" else ProcessDied(None, int(value))

    def _closed_but_alive(self) -> bool:
        """Waits a moment for a process which closed its channel to end by itself, then kills it."""
        waiting = select.poll()  # unlike `select`, for descriptors of any number
        waiting.register(self._status_pipe, select.POLLIN | select.POLLHUP)
        return not waiting.poll(EXIT_SECONDS * 1000)

    def _read_pid(self) -> int:
        line = self._status_pipe.readline().split()
        if len(line) != 2:
            raise InfrastructureError(
                "the sandbox could not fork a process for the candidate: run `agent doctor`"
            )
        return int(line[1])

    def _collect(self, fd: int) -> None:
        with os.fdopen(fd, "rb", buffering=0) as pipe:
            while data := pipe.read(1 << 16):
                room = self._limits.output - len(self._collected)
                self._collected += data[: max(room, 0)]
                if room <= 0:
                    time.sleep(DISCARD_PAUSE_SECONDS)

    def stop(self) -> None:
        """Kills the process for a thread which waits for its answer, and which then receives its
        death. Must be called before `kill`.
        """
        self._send_kill()

    def kill(self) -> None:
        """Kills the process and its descendants. Returns at once; `gone` waits. Safe to call
        twice.
        """
        if self._killed.acquire(blocking=False):
            self._send_kill()
            self._channel.close()
            end = threading.Thread(target=self._reap, daemon=True)
            end.start()
            self._end = end  # who asks from another thread waits for one that runs

    def _send_kill(self) -> None:
        """Kills the first process, and with it all processes of the candidate.

        Uses a pidfd, because the process id may be reused.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._handle is None:
                os.kill(self._pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _reap(self) -> None:
        """Reaps the process in the background: a process with a CUDA context takes a third of a
        second to die.
        """
        with contextlib.suppress(ValueError):
            self._status_pipe.read()
            self._status_pipe.close()
        if self._handle is not None:
            os.close(self._handle)
        self._remove_folders()

    def _remove_folders(self) -> None:
        if self._group:
            self._group.remove()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def gone(self, seconds: float = MAX_END_SECONDS) -> bool:
        """Waits until the killed process, its descendants and its scratch folder are gone;
        returns whether they are.
        """
        if self._end is None:
            return False
        self._end.join(seconds)
        return not self._end.is_alive()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def _open_handle(pid: int) -> int | None:
    """Returns a pidfd, if the kernel supports them; none for a process that is gone already."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _went_over(bound: Bound, limits: Limits) -> str:
    gigabytes = 1 << 30
    return {
        Bound.MEMORY: f"held more than {limits.memory / gigabytes:.3g} GiB of memory",
        Bound.PROCESSES: f"ran more than {limits.processes} processes at once",
        Bound.DISK: f"wrote more than {limits.disk / gigabytes:.3g} GiB of files",
        Bound.FILES: f"made more than {limits.files:,} files",
    }[bound]

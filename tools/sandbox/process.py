"""The trusted side of one candidate's process, which is killed at a deadline that is kept here."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tools.results import InfrastructureError, Isolation, clean_text
from tools.sandbox.channel import BadMessage, ChannelClosed, ChannelTimeout, Message, pair

if TYPE_CHECKING:
    from tools.sandbox.zygote import Zygote

READY_SECONDS = 60.0
LAST_SECONDS = 3.0
"""To die in: a process closes its channel first and its CUDA context last, which takes over a second where many share a GPU."""


class ProcessDied(Exception):
    """The candidate's process ended without an answer."""

    def __init__(self, exit_code: int | None, signal_number: int | None) -> None:
        self.exit_code, self.signal_number = exit_code, signal_number
        super().__init__(self.describe())

    def describe(self) -> str:
        if self.signal_number is not None:
            try:
                return f"the process was killed by {signal.Signals(self.signal_number).name}"
            except ValueError:
                return f"the process was killed by signal {self.signal_number}"
        return f"the process ended by itself with exit code {self.exit_code}"


class ProcessTimedOut(Exception):
    """No answer before the deadline."""


class Process:
    """One candidate's process. A context manager: leaving it kills the process and everything it started."""

    def __init__(self, zygote: Zygote) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="candidate-", dir=zygote.folder))
        self._channel, theirs = pair()
        self.isolation = Isolation()
        self._collected = bytearray()
        self._limit = zygote.limits.output
        self._status = ""
        self._ready = False
        self._end: threading.Thread | None = None
        output_read, output_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            zygote.request(self._scratch, [theirs.fileno(), output_write, status_write])
        finally:
            theirs.close()
            os.close(output_write)
            os.close(status_write)
        self._status_pipe = os.fdopen(status_read, "r")
        self._drain = threading.Thread(target=self._collect, args=(output_read,), daemon=True)
        self._drain.start()
        self._pid = self._read_pid()

    @property
    def scratch(self) -> Path:
        """The only folder that the candidate can write."""
        return self._scratch

    @property
    def output(self) -> str:
        """What was printed, capped. Data."""
        return clean_text(bytes(self._collected).decode("utf-8", "replace"), 8000)

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
        self.wait_ready()
        self.send({"entry": entry, "payload": payload}, fds)

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        try:
            self._channel.send(message, fds)
        except ChannelClosed as error:
            raise self._death() from error

    def receive(self, seconds: float) -> Message:
        """The next message. Raises ProcessDied, ProcessTimedOut, BadMessage (what arrived is no message)."""
        try:
            return self._channel.receive(time.monotonic() + seconds)
        except ChannelTimeout as error:
            raise ProcessTimedOut(f"no answer within {seconds:g} s") from error
        except ChannelClosed as error:
            raise self._death() from error

    def _death(self) -> ProcessDied:
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL) if self._closed_but_alive() else None
        ended = self._status_pipe.readline().split()
        if len(ended) != 2:
            return ProcessDied(None, None)
        return ProcessDied(int(ended[1]), None) if ended[0] == "exit" else ProcessDied(None, int(ended[1]))

    def _closed_but_alive(self) -> bool:
        """It closed its channel and lives on: give it a moment to end by itself, then it is killed."""
        import select

        return not select.select([self._status_pipe], [], [], LAST_SECONDS)[0]

    def _read_pid(self) -> int:
        line = self._status_pipe.readline().split()
        if len(line) != 2:
            raise InfrastructureError("the sandbox could not fork a process for the candidate: run `agent doctor`")
        return int(line[1])

    def _collect(self, fd: int) -> None:
        with os.fdopen(fd, "rb", buffering=0) as pipe:
            while data := pipe.read(1 << 16):
                room = self._limit - len(self._collected)
                self._collected += data[: max(room, 0)]

    def kill(self) -> None:
        """The process, its group and (through its pid namespace) all it started. Returns at once; `gone` waits. Safe to call twice."""
        for send_signal in (lambda: os.killpg(self._pid, signal.SIGKILL), lambda: os.kill(self._pid, signal.SIGKILL)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send_signal()
        self._channel.close()
        if self._end is None:
            self._end = threading.Thread(target=self._bury, daemon=True)
            self._end.start()

    def _bury(self) -> None:
        """A process with a CUDA context takes a third of a second to die: nobody needs to watch."""
        with contextlib.suppress(ValueError):
            self._status_pipe.read()
            self._status_pipe.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def gone(self, seconds: float = 20.0) -> None:
        """Waits until the killed process, all that it started and its scratch folder are no more."""
        if self._end is not None:
            self._end.join(seconds)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

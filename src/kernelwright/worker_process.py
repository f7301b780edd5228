"""One life cycle for the processes of our own trusted code: start, ask, time limit, memory limit, restart, end.

It lies below every floor, as `errors.py` does, because a judge, a policy, a measurement and a training each keep such a
process, and `tools` and `policies` never import each other. A candidate's code runs in none of them: that is
`tools/sandbox`. Only the standard library is imported here.

`ChildProcess` is any program that must end with all that it started. `WorkerProcess` is a module of ours that talks to
this process in messages of bytes; in that process `connection_to_parent` is the other end, and `end_with_parent` ends
it where this one is killed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Self

MAX_PAUSE_SECONDS = 0.05
"""Seconds between two looks at whether a process has ended."""
EXIT_SECONDS = 20.0
"""For a process that has closed its end of the connection to end by itself, so that its exit code says why: taking
torch down takes seconds on a busy machine.
"""
PARENT_WATCH_SECONDS = 1.0
"""Seconds between two looks of a worker at whether the process that started it is still there."""


class WorkerDied(Exception):
    """The process ended without an answer.

    `exit_code` is its exit status, negative where a signal ended it, and None where nothing says how it ended.
    """

    def __init__(self, exit_code: int | None) -> None:
        self.exit_code = exit_code
        super().__init__(_described(exit_code))

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it: somebody's hand, or the system's for want of memory."""
        return self.exit_code == -signal.SIGKILL


class WorkerTimedOut(Exception):
    """The process gave no answer within the seconds that it had. It is still running: `end` ends it."""


def _described(exit_code: int | None) -> str:
    if exit_code is None:
        return "the process ended, and nothing says how"
    if exit_code >= 0:
        return f"the process ended by itself with exit code {exit_code}"
    try:
        return f"the process was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"the process was killed by signal {-exit_code}"


class ChildProcess:
    """A program in a session of its own: Ctrl-C does not reach it, and it ends with all that it started.

    It also ends when this object is collected and when this process leaves. Thread-safe.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        output: IO[bytes] | None = None,
        errors: IO[bytes] | None = None,
        descriptors: Sequence[int] = (),
        memory: int | None = None,
    ) -> None:
        """Starts the program.

        environment: all of its environment; None for this process's own. folder: where it runs. output, errors: files
        that take what it prints, None for this process's own. descriptors: open files that it inherits under their
        numbers. memory: bytes of private memory that it may hold (RLIMIT_DATA); more is refused to it.
        Raises OSError where the program cannot be started.
        """
        self._process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
            pass_fds=descriptors, start_new_session=True,
        )  # fmt: skip
        self._ending = threading.Lock()
        self._unended = weakref.finalize(self, _end, os.getpid(), self._process)
        if memory is not None:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(self.pid, resource.RLIMIT_DATA, (memory, memory))

    @property
    def pid(self) -> int:
        """The number of the process, which is its group's and its session's too."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs, as seen at this moment."""
        return not _has_ended(self._process)

    def processor_seconds(self) -> float:
        """Returns the seconds for which processors have worked for it, all threads together; 0.0 once it has ended."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        user_ticks, system_ticks = fields[
            11:13
        ]  # the first field is the state, the third of proc(5)
        return (int(user_ticks) + int(system_ticks)) / os.sysconf("SC_CLK_TCK")

    @property
    def exit_code(self) -> int | None:
        """Negative where a signal ended it; None before `end` has been called."""
        return self._process.returncode

    def wait(self, seconds: float) -> bool:
        """Whether it ended by itself within these seconds. What it started may live on until `end`."""
        deadline, pause = time.monotonic() + seconds, 0.001
        while not _has_ended(self._process):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(pause * 2, MAX_PAUSE_SECONDS)
        return True

    def end(self, seconds: float = 0.0) -> None:
        """Gives it these seconds to end by itself, then kills what is left of it and of all that it started.

        Returns when it is gone. May be called again, and from another thread.
        """
        with self._ending:
            self.wait(seconds)
            self._unended()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Looks without reaping it: its number, and that of its group, stay its own until `_end`."""
    if process.returncode is not None:
        return True
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _end(owner: int, process: subprocess.Popen[bytes]) -> None:
    """Kills the group and reaps the process. A fork of the owner leaves it alone."""
    if os.getpid() != owner or process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class WorkerProcess(ChildProcess):
    """`python -m MODULE DESCRIPTOR ARGUMENTS...`, a module of ours, which answers in messages of bytes.

    It imports this very package, wherever this process found it. `connection` may be used directly where several
    answers are under way; whoever does so calls `close` after its last reader is done.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        errors: IO[bytes] | None = None,
        memory: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the process; errors, memory: as `ChildProcess` says. Raises OSError.

        environment: beside PYTHONPATH, which leads to this package; None for this process's own.
        """
        ours, theirs = socket.socketpair()
        self.connection = Connection(ours.detach())
        command = [sys.executable, "-m", module]
        with theirs:
            number = theirs.fileno()
            super().__init__(
                [*command, str(number), *arguments], environment=_with_this_package(environment), errors=errors,
                descriptors=[number], memory=memory,
            )  # fmt: skip

    def ask(self, message: bytes, seconds: float) -> bytes:
        """Sends a message and gives the answer to it. Raises WorkerTimedOut, WorkerDied."""
        self.send(message)
        return self.receive(seconds)

    def send(self, message: bytes) -> None:
        """Sends a message. Raises WorkerDied."""
        try:
            self.connection.send_bytes(message)
        except OSError:
            raise self._death() from None

    def receive(self, seconds: float) -> bytes:
        """The next message. Raises WorkerTimedOut where none begins within these seconds, and WorkerDied."""
        try:
            if not self.connection.poll(seconds):
                raise WorkerTimedOut(f"no answer within {seconds:g} s")
            return self.connection.recv_bytes()
        except (EOFError, OSError):
            raise self._death() from None

    def _death(self) -> WorkerDied:
        """It has closed its end of the connection, and ends by itself or is ended."""
        self.end(EXIT_SECONDS)
        return WorkerDied(self.exit_code)

    def hang_up(self) -> None:
        """The process reads the end of its messages, and so does whoever waits for one here.

        The descriptor stays open, so that a thread that reads it never reads another file's.
        """
        with contextlib.suppress(OSError), socket.socket(fileno=self.connection.fileno()) as line:
            try:
                line.shutdown(socket.SHUT_RDWR)
            finally:
                line.detach()

    def end(self, seconds: float = 0.0) -> None:
        """Hangs up, then ends the process as `ChildProcess.end` does."""
        self.hang_up()
        super().end(seconds)

    def close(self, seconds: float = 0.0) -> None:
        """Ends the process and closes the connection: nobody may be reading it."""
        self.end(seconds)
        self.connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _with_this_package(environment: Mapping[str, str] | None) -> dict[str, str]:
    """Returns an environment (None: this process's own) in which Python finds this package first."""
    root = str(Path(__file__).parents[1])
    return {
        **(os.environ if environment is None else environment),
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
    }


# ---------------------------------------------------------------- in the worker's process
def connection_to_parent() -> tuple[Connection, list[str]]:
    """In the process of a `WorkerProcess`: its end of the connection, and the arguments after the descriptor.

    Ctrl-C is for the process that asks, and is ignored from here on.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return Connection(int(sys.argv[1])), sys.argv[2:]


def end_forks() -> None:
    """Has every copy of this process that `os.fork` makes end at once.

    For a process that runs foreign texts: its copy would go on with the connections, and answer in its stead.
    """
    os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGKILL))


def end_with_parent(before: Callable[[], None] = lambda: None) -> None:
    """Ends this process soon after the one that started it, whatever it is at; `before` is called first.

    Without it a process that computes for minutes, or waits for work in a pool, outlives a parent that was killed.
    """
    parent, number = multiprocessing.parent_process(), os.getppid()
    # Bound now: a process that runs foreign code replaces `os._exit`, and so may that code itself.
    exit_now, parent_number, sleep = os._exit, os.getppid, time.sleep

    def watch() -> None:
        if parent is not None:
            parent.join()
        else:
            while parent_number() == number:
                sleep(PARENT_WATCH_SECONDS)
        try:
            before()
        finally:
            exit_now(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()

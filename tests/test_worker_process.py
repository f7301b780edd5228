"""One life cycle for processes of our own: asked, late, dead, over its memory, started again, interrupted, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernelwright import worker_process
from kernelwright.worker_process import ChildProcess, WorkerDied, WorkerProcess, WorkerTimedOut

MODULE = """
import os, signal, subprocess, sys, time
from kernelwright.worker_process import connection_to_parent, end_with_parent
connection, arguments = connection_to_parent()
end_with_parent()
while True:
    try:
        asked = connection.recv_bytes().decode()
    except EOFError:
        break
    if asked == "arguments":
        connection.send_bytes(" ".join(arguments).encode())
    elif asked == "die":
        os._exit(7)
    elif asked == "hang":
        connection.send_bytes(b"hanging")
        time.sleep(600)
    elif asked == "loop without an exit":
        def forbidden(*arguments):
            raise SystemExit(arguments)
        os._exit = time.sleep = os.getppid = forbidden
        connection.send_bytes(b"looping")
        while True:
            pass
    elif asked == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        connection.send_bytes(str(child.pid).encode())
    elif asked == "memory":
        try:
            held = bytearray(1 << 30)
            connection.send_bytes(b"held")
        except MemoryError:
            connection.send_bytes(b"refused")
    elif asked == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        connection.send_bytes(b"deaf")
"""
WAIT_SECONDS = 60.0
"""For an answer: far more than it takes on a loaded machine."""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that a worker process can run."""
    (tmp_path / "answers.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "answers"


def is_gone(pid: int) -> bool:
    """Whether no process has the number, or only one that nobody has reaped; waits for it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def test_a_worker_is_asked_again_and_again(module):
    with WorkerProcess(module, "cpu", "4") as worker:
        assert worker.ask(b"arguments", WAIT_SECONDS) == b"cpu 4"
        assert worker.ask(b"arguments", WAIT_SECONDS) == b"cpu 4"
        assert worker.alive
    assert not worker.alive


def test_a_worker_that_dies_says_how(module):
    worker = WorkerProcess(module, "again")
    with pytest.raises(WorkerDied, match="exit code 7") as died:
        worker.ask(b"die", WAIT_SECONDS)
    assert (died.value.exit_code, died.value.killed) == (7, False)
    worker.close()


def test_a_worker_that_is_killed_says_so(module):
    with WorkerProcess(module) as worker:
        assert worker.ask(b"arguments", WAIT_SECONDS) == b""
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="SIGKILL") as died:
            worker.receive(WAIT_SECONDS)
        assert died.value.killed


def test_a_worker_that_is_late_lives_until_it_is_ended(module):
    with WorkerProcess(module) as worker:
        assert worker.ask(b"hang", WAIT_SECONDS) == b"hanging"
        with pytest.raises(WorkerTimedOut, match=r"within 0\.1 s"):
            worker.receive(0.1)
        assert worker.alive
        worker.end()
        assert worker.exit_code == -signal.SIGKILL


def test_what_a_worker_started_ends_with_it(module):
    with WorkerProcess(module) as worker:
        child = int(worker.ask(b"child", WAIT_SECONDS))
    assert is_gone(child)


def test_what_a_worker_that_died_by_itself_had_started_ends_too(module):
    with WorkerProcess(module) as worker:
        child = int(worker.ask(b"child", WAIT_SECONDS))
        with pytest.raises(WorkerDied):
            worker.ask(b"die", WAIT_SECONDS)
        assert is_gone(child)


def test_memory_over_the_limit_is_refused_to_it(module):
    with WorkerProcess(module) as worker:
        assert worker.ask(b"memory", WAIT_SECONDS) == b"held"
    with WorkerProcess(module, memory=512 << 20) as worker:
        assert worker.ask(b"memory", WAIT_SECONDS) == b"refused"


def test_an_interrupt_is_not_for_it(module):
    with WorkerProcess(module) as worker:
        assert worker.ask(b"interrupt", WAIT_SECONDS) == b"deaf"
        assert os.getsid(worker.pid) == worker.pid


def test_a_worker_that_is_told_ends_by_itself(module):
    worker = WorkerProcess(module)
    worker.ask(b"arguments", WAIT_SECONDS)
    worker.close(WAIT_SECONDS)
    assert worker.exit_code == 0


def test_two_threads_may_end_it(module):
    worker = WorkerProcess(module)
    worker.ask(b"hang", WAIT_SECONDS)
    threads = [threading.Thread(target=worker.end) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert worker.exit_code == -signal.SIGKILL
    worker.close()


def test_nobody_who_forgot_it_leaves_it_behind(module):
    worker = WorkerProcess(module)
    worker.ask(b"hang", WAIT_SECONDS)
    pid = worker.pid
    del worker
    assert is_gone(pid)


@pytest.mark.parametrize("work", ["hang", "loop without an exit"])
def test_a_worker_at_work_ends_with_a_parent_that_is_killed(module, work, monkeypatch):
    root = str(Path(worker_process.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ["PYTHONPATH"]]))
    code = (
        "import time; from kernelwright.worker_process import WorkerProcess; "
        f"worker = WorkerProcess({module!r}); worker.ask({work.encode()!r}, {WAIT_SECONDS}); "
        "print(worker.pid, flush=True); "
        "time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    try:
        assert is_gone(pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_program_that_takes_too_long_is_ended_with_its_children(tmp_path):
    code = "import subprocess, sys, time; subprocess.Popen(['sleep', '600']); print('x', flush=True); time.sleep(600)"
    with (
        (tmp_path / "said.txt").open("wb") as said,
        ChildProcess([sys.executable, "-c", code], output=said) as child,
    ):
        while not (tmp_path / "said.txt").stat().st_size:
            time.sleep(0.01)
        assert not child.wait(0.05)
    assert child.exit_code == -signal.SIGKILL


def test_a_program_that_is_not_there_raises_oserror():
    with pytest.raises(OSError, match="no-such-program"):
        ChildProcess(["/no-such-program"])

"""Commands that end early: interrupts, a full disk, a reader that is gone, and the exit status and line of each end."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.agent.runtime.errors import Exit, explain
from kernelwright.agent.runtime.interrupts import STOPPING_SOON
from kernelwright.errors import InputError
from kernelwright.policies.base import PolicyRefused, Trouble
from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.report import InfrastructureError
from tests.agent.command_line.processes import processes_in, wait_until_gone

ROOT = Path(__file__).parents[3]

KERNELS = ROOT / "tests/kernels"

SOFTMAX = str(KERNELS / "good/fused_softmax.py")


def agent(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command as a user would, in a process of its own."""
    command = [sys.executable, "-m", "kernelwright.agent", *arguments]
    shown = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **environment}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=shown, timeout=500)


def test_an_interrupted_check_ends_with_130(tmp_path):
    pipe = tmp_path / "kernel.py"
    os.mkfifo(pipe)
    command = [
        sys.executable,
        "-m",
        "kernelwright.agent",
        "check",
        str(pipe),
        "--problem",
        "fused softmax",
    ]
    started = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    writer = opened_by_a_reader(pipe, 400)
    said = None
    while (
        said is None
    ):  # a signal between the opening and the read that waits is noticed after the read only
        started.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, said = started.communicate(timeout=20)
    os.close(writer)
    assert started.returncode == Exit.INTERRUPTED
    assert said == "agent: interrupted\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "sign", ["kernelwright-*", "*/torchinductor_*", "kernelwright-interpret-*/candidate-*"]
)
def test_a_check_interrupted_while_it_works_leaves_no_process_and_no_folder_behind(sign, tmp_path):
    """As soon as a warm process is begun, as soon as one has imported all, and with a candidate in it."""
    command = [
        sys.executable,
        "-m",
        "kernelwright.agent",
        "check",
        SOFTMAX,
        "--problem",
        "fused softmax",
        "--device",
        "cpu",
        "--quiet",
    ]
    surroundings = {**os.environ, "TMPDIR": str(tmp_path)}
    started = subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=surroundings
    )
    deadline = time.monotonic() + 400
    while not list(tmp_path.glob(sign)):
        assert started.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert processes_in(tmp_path)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=500)
    lines = [
        line for line in said.splitlines() if line != STOPPING_SOON
    ]  # told where it takes longer than a moment
    assert (started.returncode, lines) == (Exit.INTERRUPTED, ["agent: interrupted"])
    wait_until_gone(tmp_path, 400)
    assert not list(tmp_path.glob("kernelwright-*"))


def opened_by_a_reader(pipe: Path, seconds: float) -> int:
    """The writing end, as soon as somebody reads from the pipe."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_debug_shows_the_traceback(tmp_path):
    done = agent("check", str(tmp_path / "gone.py"), "--problem", "fused softmax", "--debug")
    assert done.returncode != 0
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("error", "exit_code", "says"),
    [
        (KeyboardInterrupt(), Exit.INTERRUPTED, "interrupted"),
        (InputError("no such thing"), Exit.BAD_INPUT, "no such thing"),
        (ProblemError("the reference lacks Model"), Exit.BAD_INPUT, "lacks Model"),
        (InfrastructureError("the GPU is busy: wait"), Exit.INFRASTRUCTURE, "busy"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/tmp/x"),
            Exit.INFRASTRUCTURE,
            "the disk is full (/tmp/x): make room",
        ),
        (
            OSError(errno.EACCES, "Permission denied", "/x"),
            Exit.INFRASTRUCTURE,
            "Permission denied (/x): give a path",
        ),
        (
            OSError(errno.EIO, "Input/output error", "/mnt/x"),
            Exit.INFRASTRUCTURE,
            "Input/output error (/mnt/x)",
        ),
        (
            OSError(errno.ELOOP, "Too many levels of symbolic links", "k.py"),
            Exit.BAD_INPUT,
            "(k.py): give another path",
        ),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "n" * 999),
            Exit.BAD_INPUT,
            "nnn...): give another path",
        ),
        (
            ModuleNotFoundError("no", name="fastapi"),
            Exit.INFRASTRUCTURE,
            "pip install 'kernelwright[serve]'",
        ),
        (
            ModuleNotFoundError("no", name="mcp.server"),
            Exit.INFRASTRUCTURE,
            "pip install 'kernelwright[mcp]'",
        ),
        (
            PolicyRefused("pip install 'x'", Trouble.NOT_INSTALLED),
            Exit.INFRASTRUCTURE,
            "pip install 'x'",
        ),
        (StoreError("agent db migrate", StoreTrouble.OLDER), Exit.BAD_INPUT, "agent db migrate"),
        (StoreError("a newer one", StoreTrouble.NEWER), Exit.BAD_INPUT, "a newer one"),
        (MemoryError(), Exit.INFRASTRUCTURE, "out of memory"),
        (RuntimeError("odd"), Exit.INFRASTRUCTURE, "please report it: RuntimeError: odd"),
    ],
)
def test_every_early_end_has_its_line_and_its_status(error, exit_code, says):
    line, code = explain(error)
    assert code is exit_code
    assert says in line


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("buffered", [True, False])
def test_a_full_disk_is_said_in_one_line(buffered):
    """Python tries a last time to write what is buffered."""
    told = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, *([] if buffered else ["-u"]), "-m", "kernelwright.agent", "version"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, env=told
        )
    assert done.returncode == Exit.INFRASTRUCTURE
    assert done.stderr == "agent: the disk is full: make room, or set TMPDIR to a larger disk\n"


def test_output_that_nobody_reads_is_no_trouble():
    done = subprocess.run(
        f"{sys.executable} -m kernelwright.agent problems | head -n 1",
        cwd=ROOT,
        shell=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""


@pytest.mark.parametrize("asked", [("problems",), ("--help",), ("version",)])
def test_a_reader_that_is_gone_is_no_verdict(asked):
    """The status is not the one of an incorrect candidate."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "kernelwright.agent", *asked]
    done = subprocess.run(
        command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True, timeout=500, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (Exit.NOBODY_READS, "")


def test_an_interrupt_while_a_text_is_executed_ends_with_the_exit_status_of_one(tmp_path):
    """Without `end_process`, CPython ends `python -m` by the signal itself here."""
    (tmp_path / "interrupted.py").write_text(
        "from kernelwright.agent.runtime.errors import end_process\n"
        "import atexit\natexit.register(print, 'cleaned')\n"
        "try:\n    exec('raise KeyboardInterrupt')\nexcept KeyboardInterrupt:\n    end_process(130)\n"
    )
    surroundings = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}/src"}
    done = subprocess.run(
        [sys.executable, "-m", "interrupted"], env=surroundings, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (130, "cleaned\n")


@pytest.mark.parametrize("command", ["agent", "rl"])
def test_an_interrupt_while_the_command_is_imported_is_one_line(command):
    """It lasts a third of a second and more, on a loaded machine seconds."""
    text = (
        "import runpy, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        f"runpy.run_module('kernelwright.{command}', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        Exit.INTERRUPTED,
        "",
        f"{command}: interrupted\n",
    )

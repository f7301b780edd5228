"""Ctrl-C while processes of ours verify: one line, soon, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.agent.runtime.errors import Exit
from tests.agent.command_line.processes import processes_in, wait_until_gone

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 400.0
MOMENTS = {
    "while they start": lambda folder: len(processes_in(folder)) > 2,
    "while they verify": lambda folder: (
        len({p.parent for p in folder.glob("kernelwright-interpret-*/candidate-*")}) > 1
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_corpus_interrupted_as_from_a_terminal_ends_and_leaves_no_process_behind(
    moment, tmp_path
):
    command = [
        sys.executable,
        "-m",
        "kernelwright.rl",
        "data",
        "synth",
        "--n",
        "4000",
        "--workers",
        "2",
        "--out",
        "corpus",
    ]
    surroundings = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    started = subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=surroundings,
        start_new_session=True,
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not MOMENTS[moment](tmp_path):
        assert started.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(started.pid, signal.SIGINT)
    _, said = started.communicate(timeout=PATIENCE_SECONDS)
    assert started.returncode == Exit.INTERRUPTED
    assert said.endswith("rl: interrupted\n")
    assert "Traceback" not in said
    wait_until_gone(tmp_path, PATIENCE_SECONDS)
    while list(tmp_path.glob("kernelwright-*")):  # the last process removes it as it ends
        assert time.monotonic() < deadline + PATIENCE_SECONDS
        time.sleep(0.05)


def test_a_worker_that_must_end_while_its_judge_is_being_made_leaves_no_empty_folder(tmp_path):
    """Its main thread has made the folder of a zygote and goes no further in the time that there is."""
    code = (
        "from kernelwright.rl.data import worker\n"
        "from kernelwright.tools.sandbox.folders import make_folder\n"
        "worker.WORKER_CLOSING_SECONDS, worker._worker_state['opening'] = 0.2, True\n"
        "make_folder('interpret')\n"
        "worker._leave()\n"
    )
    surroundings = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=surroundings, timeout=PATIENCE_SECONDS, check=False
    )
    assert ended.returncode == 1
    assert list(tmp_path.iterdir()) == []

"""Ctrl-C while processes of ours verify: one line, soon, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from kernelwright.agent.errors import Exit
from tests.agent.command_line.test_cli import ROOT, processes_in, wait_until_gone

SOON = 20.0


@pytest.mark.parametrize("seconds", [2.0, 12.0], ids=["while they start", "while they verify"])
def test_a_corpus_interrupted_as_from_a_terminal_ends_soon_and_leaves_no_process_behind(seconds, tmp_path):
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
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=surroundings, start_new_session=True
    )
    time.sleep(seconds)
    assert processes_in(tmp_path)
    os.killpg(started.pid, signal.SIGINT)
    _, said = started.communicate(timeout=SOON)
    assert started.returncode == Exit.INTERRUPTED
    assert said.endswith("rl: interrupted\n")
    assert "Traceback" not in said
    wait_until_gone(tmp_path, SOON)
    assert not list(tmp_path.glob("kernelwright-*"))

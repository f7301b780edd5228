"""Processes that work for one command: all there at once, deaf to Ctrl-C, gone with the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kernelwright.rl.workers.worker_pool import process_pool
from tests.agent.command_line.test_cli import ROOT

ENDLESS = """
import time
from kernelwright.rl.workers.worker_pool import process_pool
if __name__ == "__main__":
    with process_pool(2) as pool:
        print(*pool._processes, flush=True)
        pool.submit(time.sleep, 600).result()
"""


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_every_process_is_deaf_to_an_interrupt_from_its_first_moment():
    with process_pool(3) as pool:
        theirs = list(pool._processes)
        for pid in theirs:
            blocked = next(
                line
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if "SigBlk" in line
            )
            assert int(blocked.split()[1], 16) >> (signal.SIGINT - 1) & 1
            os.kill(pid, signal.SIGINT)
        assert len(theirs) == 3
        assert sorted(pool.map(abs, (-3, -2, -1))) == [1, 2, 3]
    assert not any(map(alive, theirs))


def test_what_is_under_way_is_given_up_at_the_end():
    started = time.monotonic()
    with process_pool(1) as pool:
        pool.submit(time.sleep, 600)
    assert time.monotonic() - started < 60


def test_a_killed_command_takes_its_processes_along(tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS)
    command = subprocess.Popen(
        [sys.executable, str(tmp_path / "endless.py")], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
    )  # fmt: skip
    theirs = [int(word) for word in command.stdout.readline().split()]
    assert len(theirs) == 2
    command.kill()
    command.communicate()
    deadline = time.monotonic() + 400
    while any(map(alive, theirs)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, theirs))

"""Runs tests/exploits/naive_judge.py on an exploit, in a process of its own: what a judge of the common kind would
have said.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.judge_suites import EXPLOITS, Entry, problem_of

SECONDS = 180


def fools_the_naive_judge(entry: Entry, device: str) -> bool | None:
    """None where it is not safe to run in process, or the problem cannot run on this device."""
    if entry.naive == "unsafe" or not entry.tried_on(device):
        return None
    problem = problem_of(entry.problem)
    if device == "cpu":
        problem = problem.with_sizes(problem.cpu_sizes)
    with tempfile.TemporaryDirectory(prefix="kernelwright-naive-") as folder:
        path = Path(folder, "problem.py")
        path.write_text(problem.source, encoding="utf-8")
        command = [
            sys.executable,
            str(EXPLOITS / "naive_judge.py"),
            str(path),
            str(entry.path),
            "--device",
            device,
        ]
        return _verdict(_run(command, folder))


def _run(command: list[str], folder: str) -> str:
    environment = {
        **os.environ,
        "HOME": folder,
        "TMPDIR": folder,
        "TRITON_CACHE_DIR": f"{folder}/cache",
    }
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=SECONDS, cwd=folder, env=environment,
            start_new_session=True, check=False,
        ).stdout  # fmt: skip
    except subprocess.TimeoutExpired:
        return ""


def _verdict(output: str) -> bool:
    """As such harnesses do: the last line that is a JSON object."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line).get("correct") is True
            except ValueError:
                continue
    return False

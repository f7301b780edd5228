"""The judge's own Triton kernel for the comparison gives what torch gives: interpreted here, compiled on a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def cases_on(device: str, **environment: str) -> int:
    """How many cases agree. A process of its own: whether Triton is interpreted is chosen when it is imported."""
    done = subprocess.run(
        [sys.executable, "tests/survey_cases.py", device], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        env={"PYTHONPATH": ".", "PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.splitlines()[-1])


def test_one_pass_in_triton_finds_what_torch_finds():
    assert cases_on("cpu", TRITON_INTERPRET="1") > 40


@pytest.mark.gpu
def test_one_pass_in_triton_finds_what_torch_finds_on_a_gpu():
    assert cases_on("cuda:0") > 200

"""`agent solve --backward`: the file that it writes has the gradients of the reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.command_in_process import agent_here

LAYER = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.norm = nn.BatchNorm1d(8)
        self.gate = nn.Parameter(torch.rand(8))

    def forward(self, x):
        return torch.nn.functional.silu(self.norm(x)) * self.gate


def get_inputs():
    return [torch.randn(5, 8)]


def get_init_inputs():
    return []
"""
ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_the_written_file_has_outputs_gradients_and_statistics_of_the_reference(tmp_path):
    (tmp_path / "layer.py").write_text(LAYER)
    command = [
        "solve",
        "layer.py",
        "--backward",
        "--policy",
        "compiler",
        "--device",
        "cpu",
        "--json",
    ]
    ended = agent_here(*command, "--db", "runs.db", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr[-2000:]
    solved = json.loads(ended.stdout)
    assert solved["forward"]["correct"]
    assert solved["gradients"]["problem"] == "layer.py:gradients"
    assert solved["facts"]["difference"] < 1e-6
    header = (tmp_path / "layer_triton.py").read_text().partition("\nimport")[0]
    assert "by the kernels of the gradients" in header
    assert "no backward" not in header
    calls = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench.gradient_calls",
            tmp_path / "layer_triton.py",
            tmp_path / "layer.py",
        ],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert calls.stdout.strip().splitlines()[-1:] == ['"right"'], calls.stderr[-2000:]


def test_dropout_is_refused_in_one_line(tmp_path):
    (tmp_path / "layer.py").write_text(
        LAYER.replace("* self.gate", "* torch.dropout(self.gate, 0.5, self.training)")
    )
    ended = agent_here(
        "solve",
        "layer.py",
        "--backward",
        "--policy",
        "compiler",
        "--device",
        "cpu",
        folder=tmp_path,
    )
    assert ended.returncode == 2
    assert "random numbers" in ended.stderr
    assert not (tmp_path / "layer_triton.py").exists()

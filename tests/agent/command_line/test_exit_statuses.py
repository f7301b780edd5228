"""What a script learns from the exit status of `agent check`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.agent.command_in_process import agent_here

ASSEMBLY = Path(__file__).parents[2] / "honest/inline_assembly.py"


def test_a_kernel_that_only_a_gpu_can_check_is_not_called_wrong(tmp_path):
    done = agent_here(
        "check", str(ASSEMBLY), "--problem", "mish", "--device", "cpu", "--sizes", "1", "--json", folder=tmp_path
    )
    report = json.loads(done.stdout)
    assert done.returncode == 4
    assert (report["outcome"], report["needs_gpu"]) == ("needs_gpu", "inline assembly is not interpreted")
    assert report["correct"] is False
    assert report["failure"] is None


def test_a_text_that_is_no_candidate_is_incorrect(tmp_path):
    (tmp_path / "empty.py").write_text("x = 1\n")
    done = agent_here("check", "empty.py", "--problem", "mish", "--device", "cpu", "--json", folder=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout)["outcome"] == "incorrect"

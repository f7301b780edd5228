"""The bench of the compiler's drafts, through its command."""

from __future__ import annotations

import json

from bench.compiler_drafts import main

MODULE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0
def get_inputs():
    return [torch.randn(64, 128)]
def get_init_inputs():
    return []
"""


def test_a_folder_is_drafted_and_what_was_not_begun_in_time_is_told(tmp_path):
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "doubled.py").write_text(MODULE)
    out, said = tmp_path / "results", []
    folder = str(tmp_path / "suite")
    assert main([folder, "--draft-only", "--out", str(out)], said.append) == 0
    (row,) = json.loads(out.with_suffix(".json").read_text())
    assert row["drafted"]
    assert row["reason"] == "drafted, not judged"
    assert main([folder, "--draft-only", "--out", str(out), "--seconds", "-1"], said.append) == 0
    assert any("1 were not begun within -1 s" in line for line in said)

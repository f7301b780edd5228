"""A candidate in a Markdown file: `agent check kernel.md`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.command_in_process import agent_here
from tests.tools.markdown.replies import REPLIES

TWO_BLOCKS = REPLIES["kernel and module in two blocks"][0]
PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("name", ["kernel.md", "reply.txt", "kernel"])
def test_the_blocks_of_a_markdown_file_are_judged_as_one_program(tmp_path: Path, name: str):
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / name).write_text(f"# Twice\n\n{TWO_BLOCKS}\nIt doubles x.\n")
    ended = agent_here(
        "check", name, "-p", "problem.py", "--device", "cpu", "--json", folder=tmp_path
    )
    assert (ended.returncode, json.loads(ended.stdout)["failure"]) == (0, None), ended.stdout


def test_a_markdown_file_without_a_program_has_no_code(tmp_path: Path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "notes.md").write_text("# Notes\n\n```text\nclass ModelNew comes later\n```\n")
    ended = agent_here(
        "check", "notes.md", "-p", "problem.py", "--device", "cpu", "--json", folder=tmp_path
    )
    assert (ended.returncode, json.loads(ended.stdout)["failure"]["fault"]) == (1, "no_code")

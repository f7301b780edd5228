"""What a script learns from exit statuses, and from the object that `--json` prints where a command ends early."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.command_in_process import agent_here

ASSEMBLY = Path(__file__).parents[2] / "honest/inline_assembly.py"


def test_a_kernel_that_only_a_gpu_can_check_is_not_called_wrong(tmp_path):
    done = agent_here(
        "check",
        str(ASSEMBLY),
        "--problem",
        "mish",
        "--device",
        "cpu",
        "--sizes",
        "1",
        "--json",
        folder=tmp_path,
    )
    report = json.loads(done.stdout)
    assert done.returncode == 4
    assert (report["outcome"], report["needs_gpu"]) == (
        "needs_gpu",
        "inline assembly is not interpreted",
    )
    assert report["correct"] is False
    assert report["failure"] is None


def test_a_text_that_is_no_candidate_is_incorrect(tmp_path):
    (tmp_path / "empty.py").write_text("x = 1\n")
    done = agent_here(
        "check", "empty.py", "--problem", "mish", "--device", "cpu", "--json", folder=tmp_path
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["outcome"] == "incorrect"


COMMANDS = (
    ("solve", "nothing.py"),
    ("solve", "fused softmax", "--goal", "speed"),
    ("solve",),
    ("check", "nothing.py", "--problem", "fused softmax"),
    ("check", "nothing.py"),
    ("batch", "nowhere"),
    ("inspect", "7"),
    ("compare", "1", "2"),
    ("report", "night"),
    ("export", "night"),
    ("replay", "3"),
    ("tune", "nothing.py", "--problem", "fused softmax"),
    ("db",),
    ("doctor", "--surely"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_error_is_one_object_on_stdout_and_one_line_on_stderr(words, tmp_path):
    done = agent_here(
        *words, "--json", "--db" if words[0] == "inspect" else "--json", folder=tmp_path
    )
    answer = json.loads(done.stdout)
    assert answer["exit_status"] == done.returncode == 2
    assert done.stderr == f"agent: {answer['error']}\n"


def test_without_json_stdout_is_empty(tmp_path):
    done = agent_here("solve", "nothing.py", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_near_name_is_told_and_an_ambiguous_one_refused(tmp_path):
    done = agent_here("check", "none.py", "--problem", "fused sofmaxx", folder=tmp_path)
    assert "there is no file none.py" in done.stderr, "the kernel is read first"
    (tmp_path / "kernel.py").write_text("x = 1\n")
    done = agent_here(
        "check", "kernel.py", "-p", "fused sofmaxx", "--device", "cpu", "--json", folder=tmp_path
    )
    assert json.loads(done.stdout)["taken_for"] == "fused sofmaxx"
    assert done.stderr.splitlines()[0] == "agent: 'fused sofmaxx' is taken as fused_softmax"
    done = agent_here(
        "check", "kernel.py", "-p", "Softmax kernel", "--device", "cpu", "--json", folder=tmp_path
    )
    assert "taken" not in done.stdout + done.stderr, "the same words are no other name"

"""Mistakes of a first hour: each ends soon, with one line that says what to do next."""

from __future__ import annotations

import socket
import time

import pytest
import typer

from kernelwright.agent.cli import app, main
from kernelwright.agent.command_line.policy.server_check import CONNECT_SECONDS, check_server
from kernelwright.agent.loop.stopping import Budgets
from kernelwright.agent.problems.finding import files_without_model, load_suite
from kernelwright.agent.runtime.errors import Exit
from kernelwright.policies.base import PolicyUnavailable
from kernelwright.store.database import Store
from kernelwright.tools.problem import ProblemError

MODEL = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""

RANDOM_MODEL = MODEL.replace(
    "return x * 2", "return torch.nn.functional.dropout(x, 0.5, training=True) * 2"
)
KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y
"""


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """`refused(*arguments)`: the one line on stderr of a command that is refused as bad input, in a folder of its
    own.
    """
    monkeypatch.chdir(tmp_path)
    for name in (
        "OPENAI_API_KEY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)

    def line(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        said = capsys.readouterr()
        assert ended.value.code == Exit.BAD_INPUT, said.err
        lines = [
            text for text in said.err.splitlines() if not text.startswith("[")
        ]  # the progress of long work
        assert len(lines) == 1, said.err
        return said.err

    return line


def test_the_hosted_service_without_a_key_is_refused_with_what_to_set(refused):
    assert "set OPENAI_API_KEY" in refused(
        "solve", "fused silu", "--policy", "openai:m", "--device", "cpu"
    )


def test_a_server_that_cannot_be_reached_is_refused_and_not_waited_for(refused):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(PolicyUnavailable, match=r"no connection to .*check that the server runs"):
        check_server(f"openai:m@http://127.0.0.1:{port}/v1", None)
    assert CONNECT_SECONDS <= 5.0
    assert time.monotonic() - started < 60, (
        "five seconds at most, on a machine at work too; not ten minutes"
    )


def test_a_folder_given_as_the_database_is_said_to_be_one(refused, tmp_path):
    assert "is a folder: name a file in it" in refused("inspect", "--db", str(tmp_path))


def test_an_export_into_a_folder_that_is_missing_an_empty_database_and_an_unknown_name_say_what_to_do(
    refused,
):
    Store.open("empty.db").close()
    assert "there is no folder /nowhere" in refused(
        "export", "--out", "/nowhere/kernel.py", "--db", "empty.db"
    )
    assert "agent solve or agent batch writes the first" in refused(
        "export", "--format", "jsonl", "--db", "empty.db"
    )
    assert "agent solve writes the first" in refused("inspect", "--db", "empty.db")
    assert "agent solve and agent batch write one; --db names another" in refused("report", "nope")
    said = refused("report", "nope", "--db", "empty.db")
    assert "'nope' is no trajectory and no run" in said


def test_a_suite_without_its_checkout_says_where_it_is_published(refused):
    assert "git clone https://github.com/ScalingIntelligence/KernelBench" in refused(
        "batch", "kernelbench"
    )
    assert "git clone https://github.com/ScalingIntelligence/KernelBench" in refused(
        "solve", "kernelbench:1/23"
    )


def test_options_that_need_a_gpu_are_refused_on_a_cpu(refused, tmp_path):
    (tmp_path / "kernel.py").write_text("class ModelNew: ...\n")
    asked = ("check", "kernel.py", "--problem", "fused silu", "--device", "cpu")
    assert "--ncu needs a GPU" in refused(*asked, "--ncu")
    assert "--sanitizer needs a GPU" in refused(*asked, "--sanitizer")


def test_a_budget_in_dollars_is_refused_where_nobody_is_paid(refused):
    assert "--max-usd bounds nothing with embedded" in refused(
        "solve", "fused silu", "--max-usd", "1"
    )
    assert "--max-usd bounds nothing with compiler" in refused(
        "batch", "fused silu", "--policy", "compiler", "--max-usd", "1"
    )


def test_a_folder_leaves_out_files_without_a_model_and_names_them(tmp_path):
    (tmp_path / "double.py").write_text(MODEL)
    (tmp_path / "kernel.py").write_text("class ModelNew: ...\n")
    assert [problem.name for problem in load_suite(str(tmp_path))] == ["double.py"]
    assert files_without_model(tmp_path) == [tmp_path / "kernel.py"]


def test_a_folder_of_mixed_files_gives_its_problems_and_says_what_is_wrong_with_each_other_file(
    tmp_path, capsys
):
    (tmp_path / "double.py").write_text(MODEL)
    (tmp_path / ".hidden.py").write_text(MODEL)
    (tmp_path / "binary.py").write_bytes(b"\x00\x01\xff")
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "dangling.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "kernel.py").write_text("class ModelNew: ...\n")
    assert [problem.name for problem in load_suite(str(tmp_path))] == ["double.py"]
    command = ["batch", str(tmp_path), "--policy", "scripted:none.md", "--device", "cpu"]
    with pytest.raises(SystemExit):
        main(command)  # no such script: what is skipped is said before
    said = capsys.readouterr().err
    assert f"skipped, since they define no Model: {tmp_path / 'kernel.py'}\n" in said
    assert "binary.py is not UTF-8 text" in said
    assert "broken.py: the reference is not Python at line 1" in said
    assert "dangling.py" in said
    assert ".hidden.py" not in said


def test_a_folder_of_which_no_file_can_be_read_says_why(tmp_path):
    (tmp_path / "broken.py").write_text("def (")
    with pytest.raises(ProblemError, match="the reference is not Python at line 1"):
        load_suite(str(tmp_path))


def test_one_kernel_is_no_draft_of_several_problems(refused, tmp_path):
    (tmp_path / "kernel.py").write_text("class ModelNew: ...\n")
    said = refused("batch", "fused silu", "vector add", "--draft", "kernel.py", "--device", "cpu")
    assert "--draft kernel.py is one kernel, and these are 2 problems" in said


def test_old_names_of_options_work_and_say_the_new_ones(refused, capsys):
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "solve",
                "fused silu",
                "--samples",
                "3",
                "--search",
                "beam",
                "--output=kernel.py",
                "--dry-run",
                "--device",
                "cpu",
            ]
        )
    assert ended.value.code == 0
    said = capsys.readouterr().err.splitlines()
    assert [
        "--samples is now called --width" in said[0],
        "--output is now called --out" in said[1],
    ] == [True, True]


def test_every_option_of_solve_and_batch_that_both_have_is_in_the_same_panel():
    commands = typer.main.get_command(app).commands
    solve, batch = ({p.name: p for p in commands[name].params} for name in ("solve", "batch"))
    shared = set(solve) & set(batch) - {"out", "help"}
    assert {"turns", "prompts", "search", "goal", "device", "width", "draft", "partial"} <= shared
    assert all(
        solve[n].rich_help_panel == batch[n].rich_help_panel and solve[n].opts == batch[n].opts
        for n in shared
    )
    assert [
        n for n in shared - {"tune", "own_work"} if solve[n].default != batch[n].default
    ] == [], "a batch is asked to tune, and judges strictly"
    assert Budgets().turns == solve["turns"].default


def test_a_random_reference_is_said_to_be_so_by_every_command_and_no_candidate_is_blamed(
    refused, tmp_path, capsys
):
    (tmp_path / "noisy").mkdir()
    (tmp_path / "noisy" / "noisy.py").write_text(RANDOM_MODEL)
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "answer.md").write_text(f"```python\n{KERNEL}```\n")
    said = refused("check", "kernel.py", "--problem", "noisy/noisy.py", "--device", "cpu")
    assert "the reference is random: output 0 follows torch's generator" in said

    scripted = ("--policy", "scripted:answer.md", "--draft", "policy", "--device", "cpu")
    said = refused("solve", "noisy/noisy.py", "--out", "best.py", *scripted)
    assert "the reference is random at line" in said
    with pytest.raises(SystemExit) as ended:
        main(["batch", "noisy", "--run", "night", *scripted])
    assert ended.value.code == Exit.BAD_INPUT
    shown = " ".join(capsys.readouterr().out.split())
    assert "mismatch" not in shown
    assert "run night done, and no problem could be judged" in shown
    assert "not judged 1 of 1 problem, in no share" in shown
    assert (
        "noisy.py: the reference is random at line 6: output 0 follows torch's generator" in shown
    )
    assert "or make the random numbers an input of forward" in shown, "the reason is whole"
    assert "1 of 1 done, 0 correct here, 1 not judged" in shown
    assert " - " not in shown, "of no problem that can be judged there is no share"


def test_a_batch_that_pauses_says_why(tmp_path, refused, capsys):
    (tmp_path / "double.py").write_text(MODEL)
    (tmp_path / "answer.md").write_text("```python\nimport torch\nclass ModelNew(:\n```\n")
    command = [
        "batch",
        "double.py",
        "--run",
        "short",
        "--policy",
        "scripted:answer.md",
        "--draft",
        "policy",
    ]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--device", "cpu"])
    said = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == Exit.INFRASTRUCTURE
    assert "not finished 1 sample " in said
    assert "paused, refused: scripted:answer.md has 1 answer, and turn 2 was asked for" in said

    assert "'short' is a run of .kernelwright/runs.db, and one trajectory is wanted" in refused(
        "inspect", "short"
    )
    with pytest.raises(SystemExit) as ended:
        main(["export", "short", "--format", "jsonl"])
    assert ended.value.code == Exit.DONE, "a run may be named where many trajectories can be meant"

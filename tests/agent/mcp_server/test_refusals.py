"""What the tools answer to requests that cannot be used, to a spent budget and to this machine's trouble."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from typing import Any

import pytest
from mcp import Client

from kernelwright.agent.mcp_server.answers import AnswerState, Question
from kernelwright.agent.mcp_server.budget import ClientBudgets
from kernelwright.agent.mcp_server.history import History, StoredVerdict, utc_timestamp
from kernelwright.agent.mcp_server.judging import JudgeRequest, ServerJudge
from kernelwright.agent.mcp_server.requests import Access, read_source
from kernelwright.agent.mcp_server.server import KernelServer
from kernelwright.errors import InputError

from .conftest import RIGHT


def serving(tmp_path, local: bool = True, verdicts: int = 5) -> ServerJudge:
    history = History(tmp_path / "verdicts.db")
    return ServerJudge("cpu", history, ClientBudgets(verdicts, 1000.0), Access(local=local))


def call(judging: ServerJudge, tool: str, **arguments: Any) -> dict[str, Any]:
    async def once() -> Any:
        async with Client(KernelServer(judging, "test")) as client:
            return await client.call_tool(tool, arguments)

    result = asyncio.run(once())
    assert set(result.structured_content) >= {"verdict_id", "budget"}
    return dict(result.structured_content)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("no_such_tool", {}, "no_such_tool"),
        ("check", {"problem": "fused silu"}, "source: is missing"),
        ("check", {"problem": 5, "source": RIGHT}, "problem: must be a text"),
        (
            "check",
            {"problem": "fused silu", "source": RIGHT, "sizes": 65},
            "sizes: must be at most 64",
        ),
        ("check", {"problem": "fused silu", "source": RIGHT, "own_work": "none"}, "choose strict"),
        ("check", {"problem": "no such problem at all", "source": RIGHT}, "near ones are"),
        ("check", {"problem": "fused silu", "source": "missing.py"}, "there is no file missing.py"),
        ("check", {"problem": "fused silu", "source": "\0\n"}, "null bytes"),
        ("check", {"problem": "import torch\n", "source": RIGHT}, "the reference lacks Model"),
        ("compile", {"problem": "fused silu", "source": RIGHT, "targets": ["sm_1"]}, "sm_1"),
        ("bench", {"problem": "fused silu", "source": RIGHT, "baseline": "numpy"}, "baseline"),
        ("result", {"verdict_id": "0123"}, "there is no verdict"),
        ("result", {"verdict_id": "0123", "wait_seconds": 1e9}, "wait_seconds"),
        ("submit", {"question": "guess", "problem": "fused silu", "source": RIGHT}, "question"),
        ("problem_show", {"problem": ""}, "no problem was named"),
        ("problem_show", {"problem": "x" * 2**20}, "1000 characters at most"),
        ("problem_list", {"query": "x" * 2**20}, "query"),
        ("result", {"verdict_id": "x" * 2**20}, "verdict_id"),
        ("history", {"problem": "x" * 2**20}, "1000 characters at most"),
        ("compile", {"problem": "fused silu", "source": "x" * 2**22 + ".py"}, "2,097,152 bytes"),
        ("history", {"problem": "no such problem at all"}, "near ones are"),
        ("history", {"problm": "fused silu"}, "takes no problm: it takes problem"),
    ],
)
def test_a_request_that_cannot_be_used_is_an_answer_that_says_what_to_do(
    tmp_path, tool, arguments, said
):
    with serving(tmp_path) as judging:
        answer = call(judging, tool, **arguments)
    assert said in answer["error"]
    assert "\n" not in answer["error"]
    assert len(answer["error"]) < 500
    assert answer["budget"]["verdicts"] == 5


def test_a_source_in_a_fenced_block_is_the_program_in_it():
    program = "import triton\n\n\nclass ModelNew:\n    pass\n"
    for text in (program, f"Here it is:\n```python\n{program}```\nIt adds."):
        assert read_source(text, Access()) == program


def test_what_is_no_file_of_text_is_not_read(tmp_path):
    """A pipe that nobody writes to, a device without end, and a file of data, all named as Python files."""
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "endless.py").symlink_to("/dev/zero")
    (tmp_path / "data.py").write_bytes(b" " * (2**21 + 1))
    with serving(tmp_path) as judging:
        for name, said in (
            ("pipe.py", "no file of text"),
            ("endless.py", "no file of text"),
            ("data.py", "2,097,152"),
        ):
            path = str(tmp_path / name)
            assert said in call(judging, "problem_show", problem=path)["error"]
            assert said in call(judging, "check", problem="fused silu", source=path)["error"]
            assert said in call(judging, "history", problem=path)["error"]
        assert "no file of text" in call(judging, "problem_show", problem="/dev/zero")["error"]


@pytest.mark.parametrize("source", ["/etc/hostname.py", "candidate.py"])
def test_a_remote_client_names_no_file_of_the_server(tmp_path, source):
    with serving(tmp_path, local=False) as judging:
        assert (
            "takes no file" in call(judging, "check", problem="fused silu", source=source)["error"]
        )
        assert "takes no file" in call(judging, "problem_show", problem="/etc/hostname")["error"]
        assert "takes no file" in call(judging, "problem_show", problem=str(__file__))["error"]


def test_a_spent_budget_refuses_and_a_text_that_is_no_python_costs_one_verdict(tmp_path):
    with serving(tmp_path, verdicts=1) as judging:
        first = call(judging, "compile", problem="fused silu", source="def broken(:\n    pass\n")
        assert (first["outcome"], first["failure"]["fault"]) == ("invalid", "syntax")
        assert first["budget"]["verdicts"] == 0
        second = call(judging, "compile", problem="fused silu", source=RIGHT)
    assert second["state"] == "refused"
    assert "--verdicts" in second["error"]


def test_trouble_of_this_machine_is_no_outcome_and_costs_nothing(tmp_path):
    judging = serving(tmp_path)
    judging.close()
    judging._pool = type(judging._pool)(
        1
    )  # the evaluators are gone, as after a crash of their processes
    begun = judging.submit(
        JudgeRequest(question=Question.COMPILE, problem="fused silu", source=RIGHT)
    )
    assert begun.verdict_id is not None
    future = judging.running(begun.verdict_id)
    assert future is not None
    future.result(500)
    answer = judging.result(begun.verdict_id)
    assert answer.state is AnswerState.FAILED
    assert answer.outcome is None
    assert answer.budget.verdicts == 5


def test_a_verdict_whose_server_was_killed_is_told_as_failed(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with serving(tmp_path) as judging:
        row = StoredVerdict(
            id="f" * 32, created=utc_timestamp(), question=Question.CHECK, problem="fused_silu", problem_hash="",
            source=RIGHT, candidate_hash="", state=AnswerState.RUNNING, server=gone.pid,
        )  # fmt: skip
        judging.history.begin(row)
        assert "submit the candidate again" in call(judging, "result", verdict_id="ffff")["error"]
        assert call(judging, "history")["verdicts"][0]["state"] == "failed"
        judging.history.keep(row.with_(server=os.getppid()))
        assert call(judging, "result", verdict_id="f" * 32, wait_seconds=0)["state"] == "running"


def test_a_file_that_is_no_history_is_refused(tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("not a database, " * 100)
    with pytest.raises(InputError, match="cannot be used"):
        History(other)
    newer = tmp_path / "newer.db"
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="newer version"):
        History(newer)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--transport", "carrier-pigeon"], "choose stdio or http"),
        (["--transport", "http", "--host", "0.0.0.0"], "give a --token"),
        (["remove"], "choose serve or install"),
        (["install"], "needs --client"),
        (["--device", "cuda:7"], "cuda:7"),
        (["--db", "/proc/verdicts.db"], "cannot be used"),
    ],
)
def test_the_command_refuses_what_it_cannot_use_in_one_line(tmp_path, words, said):
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright.agent", "mcp", *words],
        cwd=tmp_path, capture_output=True, text=True, input="", timeout=500,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_ctrl_c_ends_a_server_that_waits_for_its_client(tmp_path):
    server = subprocess.Popen(
        [sys.executable, "-m", "kernelwright.agent", "mcp", "--device", "cpu"],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    server.stdin.write(
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}) + "\n"
    )
    server.stdin.flush()
    assert "kernelwright" in server.stdout.readline()
    server.send_signal(signal.SIGINT)
    assert server.wait(500) == 130

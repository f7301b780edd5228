"""What `agent inspect` prints where stdout is no terminal, its filters, and its one-line refusals."""

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from kernelwright.agent.cli import main
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.viewing.viewer.filtering import parse_filter
from kernelwright.errors import InputError
from kernelwright.store.database import Store
from kernelwright.store.models import Action
from kernelwright.store.records import CandidateFilter, TrajectoryStart
from kernelwright.tools.report import Fault, Rung
from tests.agent.viewing.filled_database import fill

ROOT = Path(__file__).parents[3]

SILU = (ROOT / "tests" / "kernels" / "good" / "fused_silu.py").read_text()


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept") / "runs.db"
    with Store.open(path) as store:
        fill(store)
    return path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", CandidateFilter()),
        (
            "fault:mismatch action:repair",
            CandidateFilter(fault=Fault.MISMATCH, action=Action.REPAIR),
        ),
        ("correct speedup>=1.2x", CandidateFilter(correct=True, min_speedup=1.2)),
        (
            "problem:'a b' rung:compile unfinished",
            CandidateFilter(problem="a b", rung=Rung.COMPILE, finished=False),
        ),
    ],
)
def test_a_filter_is_read_as_people_write_it(text, wanted):
    assert parse_filter(text) == wanted


@pytest.mark.parametrize(
    "text", ["moon", "fault:", "fault:moon", "speedup:fast", "'open", "correct incorrect"]
)
def test_what_is_no_filter_is_refused_in_one_line(text):
    with pytest.raises(InputError) as refused:
        parse_filter(text)
    assert "\n" not in str(refused.value)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def agent(capsys, monkeypatch):
    """The command as `main` runs it, in this process."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")

    def called(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["inspect", *map(str, arguments)])
        return Done(end.value.code, *capsys.readouterr())

    return called


def test_where_stdout_is_no_terminal_it_is_plain_text(kept, agent):
    listed = agent("--db", kept).stdout
    assert listed.splitlines()[0].split() == [
        "id",
        "run",
        "problem",
        "policy",
        "turns",
        "best",
        "stopped",
    ]
    assert "correct 2.25x" in listed
    assert "night" in listed
    whole = agent("1", "--db", kept).stdout
    for part in (
        "=== turn 1: draft",
        "=== turn 5: refine",
        "└─5 refine correct 2.25x *",
        "--- diff",
        "please repair it",
    ):
        assert part in whole, part
    assert "\x1b" not in whole
    code = agent("1", "--show", "code", "--turn", "2", "--db", kept).stdout
    assert (
        code.strip() == SILU.replace("import triton\n", "import triton\n\nNUMBER = 1\n", 1).strip()
    ), "fit for a file"
    assert "please draft it" in agent("1", "--turn", 1, "--show", "prompt", "--db", kept).stdout
    assert "mismatch" not in agent("--filter", "fault:no_code", "--db", kept).stdout


def test_json_holds_the_lineage_and_every_turn(kept, agent):
    found = json.loads(agent("1", "--json", "--db", kept).stdout)
    assert found["lineage"] == [[1, 2], [2, 3], [3, 4], [3, 5]]
    assert [turn["report"]["correct"] for turn in found["turns"]] == [
        False,
        True,
        True,
        False,
        True,
    ]
    assert found["best"] == 5
    rows = json.loads(agent("--json", "--db", kept).stdout)
    assert [row["id"] for row in rows] == [3, 2, 1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("99",), "no trajectory 99"),
        (("moon",), "give its number, or last"),
        (("1", "--turn", "9"), "choose 1 to 5"),
        (("1", "--show", "sass"), "choose turn, prompt, code, diff, ptx"),
        (("2", "--show", "code"), "holds no code"),
        (("2", "--show", "ptx"), "nothing to compile"),
        (("--turn", "1"), "give its number"),
        (("--filter", "moon"), "is no filter"),
    ],
)
def test_what_is_not_there_is_one_line(kept, line, said, agent):
    done = agent(*line, "--db", kept)
    assert done.returncode in (2, 3)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_empty_database_and_a_missing_one_are_one_line_each(tmp_path, agent):
    Store.open(tmp_path / "empty.db").close()
    for name, said in (("empty.db", "holds no trajectory yet"), ("missing.db", "missing.db")):
        done = agent("--db", tmp_path / name)
        assert done.returncode in (2, 3)
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


def test_in_a_real_terminal_the_viewer_starts_and_q_ends_it(kept):
    main, side = pty.openpty()
    told = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "TERM": "xterm-256color",
        "COLUMNS": "110",
        "LINES": "30",
    }
    command = [sys.executable, "-m", "kernelwright.agent", "inspect", "1", "--db", str(kept)]
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=told) as process:
        os.close(side)
        seen, asked = b"", False
        deadline = time.monotonic() + 400
        while time.monotonic() < deadline:
            try:
                seen += os.read(main, 65536)
            except OSError:
                break
            if b"fused_silu" in seen and not asked:
                os.write(main, b"q")
                asked = True
        assert process.wait(500) == 0
    os.close(main)
    assert b"fused_silu" in seen
    assert b"Traceback" not in seen


def test_a_run_that_was_killed_is_not_said_to_be_running(tmp_path, agent):
    def said():
        return agent("--db", tmp_path / "runs.db").stdout.splitlines()[1].rstrip().split("  ")[-1]

    start = TrajectoryStart(problem=find_by_name("fused_silu"), policy="embedded")
    with Store.open(tmp_path / "runs.db") as store:
        trajectory = store.begin(start)
        assert said() == "running"
    assert said() == "cut off", "as after kill -9: nobody said that it stopped"
    with Store.open(tmp_path / "runs.db") as store:
        store.begin(start)
        store.pause(trajectory.id, "interrupted")
    assert said() == "interrupted"

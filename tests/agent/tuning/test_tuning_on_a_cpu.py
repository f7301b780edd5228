"""`agent tune` where there is no GPU: pruned by compiling, honest about what it does not know, and resumable."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GOOD = ROOT / "tests" / "kernels" / "good"
CONFIGURATIONS = 8
pytestmark = [pytest.mark.slow, pytest.mark.nightly]


def command(folder, *more):
    arguments = [
        "tune",
        str(GOOD / "matvec.py"),
        "-p",
        "matvec",
        "--device",
        "cpu",
        "--target",
        "sm_90",
        "--check",
        "0",
    ]
    arguments += ["--configurations", str(CONFIGURATIONS), "--out", str(folder / "tuned.py"), *more]
    return [sys.executable, "-m", "kernelwright.agent", *arguments]


def environment():
    return os.environ | {"PYTHONPATH": str(ROOT / "src")}


def run(folder, *more):
    return subprocess.run(
        command(folder, *more),
        capture_output=True,
        text=True,
        env=environment(),
        cwd=folder,
        timeout=500,
    )


def rows_of(folder):
    path = folder / "tuned.py.tuning.jsonl"
    rows = path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []
    return [row for row in rows if '"kind":"compiled"' in row]


def plain(text):
    """Without what says how it was made."""
    return {k: v for k, v in json.loads(text).items() if k not in ("journal", "resumed")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    done = run(folder, "--json")
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_nothing_is_claimed_to_be_measured_and_no_kernel_is_written(whole):
    folder, told = whole
    found = json.loads(told)
    assert found["measured"] is False
    assert found["output"] is None
    assert not (folder / "tuned.py").exists()
    assert all(row["timing"] is None for group in found["groups"] for row in group["rows"])
    assert len(rows_of(folder)) == CONFIGURATIONS


def test_a_tuning_killed_at_any_point_ends_with_the_same_result(whole, tmp_path):
    process = subprocess.Popen(
        command(tmp_path, "--json"), stdout=subprocess.DEVNULL, env=environment(), cwd=tmp_path
    )
    deadline = time.monotonic() + 400
    while len(rows_of(tmp_path)) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = rows_of(tmp_path)
    assert len(before) >= 3  # on a busy machine it may have been done by then
    path = tmp_path / "tuned.py.tuning.jsonl"
    path.write_bytes(path.read_bytes()[:-20])  # the last row was cut off while it was written
    done = run(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed"] is True
    assert rows_of(tmp_path)[: len(before) - 1] == before[:-1]
    assert plain(done.stdout) == plain(whole[1])


def test_the_table_says_what_remains_and_that_the_rest_needs_a_gpu(whole, tmp_path):
    folder, _ = whole
    done = run(folder, "--picture", str(tmp_path / "tried.svg"))
    assert done.returncode == 0, done.stderr
    assert "needs a GPU" in done.stdout
    assert "as in the file" in done.stdout
    assert (tmp_path / "tried.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")


def test_another_command_begins_its_journal_anew(whole):
    from kernelwright.agent.tuning.journal import Journal

    folder, _ = whole
    with Journal(folder / "other.jsonl", "one") as journal:
        journal.add("compiled", "a", 1)
    with Journal(folder / "other.jsonl", "one") as journal:
        assert journal.find("compiled", "a") == 1
    with Journal(folder / "other.jsonl", "two") as journal:
        assert journal.find("compiled", "a") is None


def test_a_file_of_someones_own_is_never_overwritten(tmp_path):
    (tmp_path / "tuned.py").write_text("mine = 1\n", encoding="utf-8")
    done = run(tmp_path)
    assert done.returncode == 2
    assert "--out" in done.stderr
    assert (tmp_path / "tuned.py").read_text(encoding="utf-8") == "mine = 1\n"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--precision", "half"], "choose ieee, split, any"),
        (["--shape", "q=3"], "sizes of matvec are"),
        (["--device", "cuda:0"], "--device cpu"),
    ],
)
def test_what_cannot_be_used_is_one_line_that_says_what_to_do(tmp_path, more, told):
    done = run(tmp_path, *more)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1

"""What goes wrong round a run: servers, databases, disks, terminals.

Each ends with its status and one line, and nothing that was finished is lost.
"""

import contextlib
import fcntl
import functools
import json
import os
import pty
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from kernelwright.agent.cli import main
from kernelwright.agent.runtime.errors import Exit
from kernelwright.store.connection.errors import StoreError, StoreTrouble
from kernelwright.store.database import Store
from kernelwright.store.models import CandidateState
from tests.policies.loopback import loopback, reply

ROOT = Path(__file__).parents[3]
PROSE = "I think about the memory layout of this kernel, and write nothing down. " * 30


@pytest.fixture
def solve(tmp_path, monkeypatch, capsys):
    """`solve(*arguments)` in a folder of its own: exit status, what `--json` printed (or None), what was said on
    stderr.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def solved(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["solve", "fused silu", *arguments, "--device", "cpu", "--json", "--quiet"])
        said = capsys.readouterr()
        return ended.value.code, json.loads(said.out) if said.out else None, said.err

    return solved


def refused(result, code, says):
    status, out, err = result
    assert (status, out["exit_status"], err.count("\n")) == (code, code, 1), err
    assert says in err
    assert says in out["error"]


# ------------------------------------------------------------------ servers
def says(content, **how):
    return lambda handler: handler.say(content, **how)


def late(handler):
    time.sleep(60)


def endless(handler):
    """Headers, then words without end."""
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.end_headers()
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b" " * 1000)
            time.sleep(0.01)


def cut_off(handler):
    body = json.dumps(reply(PROSE)).encode()
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[:60])
    handler.close_connection = True


SERVERS = {
    "late": (late, Exit.INFRASTRUCTURE, "infrastructure"),
    "endless": (endless, Exit.INFRASTRUCTURE, "infrastructure"),
    "cut off": (cut_off, Exit.INFRASTRUCTURE, "infrastructure"),
    "not text": (says(b"\xff\xfe\x00\x9f" * 50), Exit.INFRASTRUCTURE, "infrastructure"),
    "another form": (says([1, 2, 3]), Exit.INFRASTRUCTURE, "infrastructure"),
    "broken": (
        says({"error": {"message": "overloaded"}}, status=503),
        Exit.INFRASTRUCTURE,
        "infrastructure",
    ),
    "a web page": (says(b"<html>Welcome</html>", kind="text/html"), Exit.BAD_INPUT, "refused"),
}


@pytest.mark.slow
def test_a_server_that_misbehaves_pauses_the_run_and_the_same_command_goes_on_when_it_answers(
    solve, right
):
    good = says(reply(right))
    behaviours = [behaviour for behaviour, _, _ in SERVERS.values()]
    with loopback(*behaviours, good) as server:
        asked = ("--policy", f"openai:m@{server.url}", "--patience", "0", "--timeout")
        ids = set()
        for name, (_, code, reason) in SERVERS.items():
            status, paused, _ = solve(*asked, "1" if name in ("late", "endless") else "300")
            assert (status, paused["stop_reason"]) == (code, reason), name
            assert paused["message"], name
            assert "\n" not in paused["message"], name
            assert paused["spent"]["turns"] == 0, f"{name}: infrastructure is not the policy's turn"
            ids.add(paused["trajectory_id"])
        status, solved, _ = solve(*asked, "300")
        assert (status, solved["stop_reason"], solved["spent"]["turns"]) == (
            Exit.DONE,
            "target_reached",
            1,
        )
        assert ids == {solved["trajectory_id"]}


def test_replies_that_are_long_odd_or_withheld_are_the_policys_turns_and_are_counted(solve):
    replies = [
        reply("na " * 400_000),
        reply("\ud800\x00\x1b[2J no code \ufffe"),
        reply(None, finish_reason="content_filter"),
    ]
    with loopback(*(says(content) for content in replies)) as server:
        status, solved, _ = solve(
            "--policy", f"openai:m@{server.url}", "--patience", "0", "--draft", "policy"
        )
    assert (status, solved["stop_reason"], solved["spent"]["turns"]) == (
        Exit.INCORRECT,
        "format_errors",
        3,
    )
    with Store.open(".kernelwright/runs.db", readonly=True) as store:
        texts = [turn.completion.text for turn in store.turns(solved["trajectory_id"])]
    assert len(texts[0]) == 1_200_000, "kept whole"
    assert "\0" not in texts[1]


@pytest.mark.slow
def test_ctrl_c_while_a_slow_server_is_asked_pauses_at_once(tmp_path):
    with loopback(lambda handler: time.sleep(600)) as server:
        line = [sys.executable, "-m", "kernelwright.agent", "solve", "fused silu", "--policy", f"openai:m@{server.url}",
            "--device", "cpu", "--json"]  # fmt: skip
        told = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        process = subprocess.Popen(line, cwd=tmp_path, env=told, stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 400
        while not server.asked and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=500)
    assert process.returncode == Exit.INTERRUPTED
    assert json.loads(out)["stop_reason"] == "interrupted"


# ------------------------------------------------------------------ databases
@pytest.fixture
def script(tmp_path, unfinished):
    path = tmp_path / "script.json"
    path.write_text(json.dumps([unfinished(k) for k in range(4)]))
    return ("--policy", f"scripted:{path}", "--turns", "4")


def test_a_database_of_a_newer_schema_or_of_another_program_is_refused_and_left_alone(
    solve, script, tmp_path
):
    Store.open("newer.db").close()
    for name, statement in (
        ("newer.db", "PRAGMA user_version = 999"),
        ("other.db", "CREATE TABLE songs (title TEXT)"),
    ):
        with closing(sqlite3.connect(name)) as plain:
            plain.execute(statement)
            plain.commit()
        before = (tmp_path / name).read_bytes()
        refused(solve(*script, "--db", name), Exit.BAD_INPUT, f"the database {name}")
        assert (tmp_path / name).read_bytes() == before
    refused(
        solve(*script, "--db", "nowhere/runs.db"),
        Exit.BAD_INPUT,
        "no folder nowhere for the database",
    )


def test_a_locked_database_is_waited_for_then_said_so(solve, script, monkeypatch):
    Store.open("runs.db").close()
    monkeypatch.setattr(
        "kernelwright.agent.runtime.databases.Store.open", functools.partial(Store.open, wait=0.3)
    )
    with closing(sqlite3.connect("runs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused(
            solve(*script, "--db", "runs.db"), Exit.INFRASTRUCTURE, "is locked by another process"
        )
        other.execute("ROLLBACK")
    status, solved, _ = solve(*script, "--db", "runs.db")
    assert (status, solved["stop_reason"]) == (Exit.INCORRECT, "turns")


def test_a_lock_in_mid_run_stops_it_where_it_is_and_it_goes_on_there(begin, store, evaluator, tmp_path, unfinished,
    right):  # fmt: skip
    """What was answered but could not be judged in the database is judged later, and not asked for again."""
    from kernelwright.agent.loop.attempts import JudgedAttempt

    answers = [unfinished(1), right]
    run = begin(answers)
    with Store.open(tmp_path / "runs.db", wait=0.2) as hasty:
        run.store = hasty
        hasty.owner = store.owner
        run.step()
        with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="is locked by another process") as caught:
                run.run()
            other.execute("ROLLBACK")
    assert caught.value.trouble is StoreTrouble.LOCKED
    again = begin(answers)
    assert again.trajectory_id == run.trajectory_id
    assert again.run() == "target_reached"
    assert [turn.state for turn in store.turns(again.trajectory_id)] == [CandidateState.JUDGED] * 2
    assert isinstance(again.best, JudgedAttempt)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 12 MB: three times what SQLite lets its journal grow to."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_database_on_a_read_only_disk_is_refused_and_still_read(
    solve, script, small_disk, capsys
):
    where = str(small_disk / "runs.db")
    solve(*script, "--db", where)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    refused(solve(*script, "--db", where), Exit.INFRASTRUCTURE, "may not be written")
    with pytest.raises(SystemExit) as ended:
        main(["replay", "last", "--db", where])
    assert ended.value.code == Exit.DONE
    assert "turn 4" in capsys.readouterr().out


def test_a_full_disk_stops_the_run_and_the_same_command_goes_on_when_there_is_room(solve, small_disk, tmp_path,
    unfinished):  # fmt: skip
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(11_000_000))
    answers = [f"{os.urandom(12_000).hex()}\n\n{unfinished(k)}" for k in range(24)]
    (tmp_path / "long.json").write_text(json.dumps(answers))
    asked = ("--policy", "scripted:long.json", "--turns", "24", "--db", str(small_disk / "runs.db"))
    refused(solve(*asked), Exit.INFRASTRUCTURE, "free some space, then run the same command again")
    with Store.open(small_disk / "runs.db", readonly=True) as store:
        finished = [turn for turn in store.turns(1) if turn.state is CandidateState.JUDGED]
    assert 1 < len(finished) < 24
    ballast.unlink()
    status, solved, _ = solve(*asked)
    assert (status, solved["stop_reason"], solved["trajectory_id"]) == (Exit.INCORRECT, "turns", 1)
    with Store.open(small_disk / "runs.db", readonly=True) as store:
        turns = store.turns(1)
    assert [turn.turn for turn in turns] == list(range(24))
    assert turns[: len(finished)] == finished, "what was finished is as it was"


@pytest.mark.slow
def test_a_kernel_that_finds_no_room_is_still_in_the_database(
    solve, small_disk, tmp_path, right, capsys
):
    with contextlib.suppress(OSError):
        (small_disk / "ballast").write_bytes(bytes(13_000_000))
    (tmp_path / "right.json").write_text(json.dumps([right]))
    asked = (
        "--policy",
        "scripted:right.json",
        "--db",
        "runs.db",
        "--out",
        str(small_disk / "kernel.py"),
    )
    refused(solve(*asked), Exit.INFRASTRUCTURE, "the disk is full")
    with pytest.raises(SystemExit) as ended:
        main(["export", "last", "--db", "runs.db", "--out", "kernel.py"])
    assert ended.value.code == Exit.DONE, capsys.readouterr().err
    assert "class ModelNew" in (tmp_path / "kernel.py").read_text()


# ------------------------------------------------------------------ terminals
@pytest.mark.slow
@pytest.mark.parametrize(("rows", "columns"), [(2, 8), (0, 0)])
def test_a_terminal_that_is_too_small_for_the_live_view_harms_nothing(
    script, tmp_path, rows, columns
):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    line = [
        sys.executable,
        "-m",
        "kernelwright.agent",
        "solve",
        "fused silu",
        *script,
        "--device",
        "cpu",
    ]
    told = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm"}
    told.pop("COLUMNS", None)
    process = subprocess.Popen(
        line, cwd=tmp_path, env=told, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = bytearray()
    reader = threading.Thread(target=_drain, args=(ours, shown), daemon=True)
    reader.start()
    assert process.wait(timeout=500) == Exit.INCORRECT, shown.decode(errors="replace")[-2000:]
    reader.join(500)
    assert b"Traceback" not in shown
    assert b"turn" in shown


def _drain(descriptor, into):
    with contextlib.suppress(OSError):
        while part := os.read(descriptor, 65536):
            into += part
    os.close(descriptor)

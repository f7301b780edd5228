"""`agent solve` as a user meets it, in a process of its own."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.runtime.errors import Exit
from kernelwright.agent.solve.solving import solve_problem
from kernelwright.policies.scripted import ScriptedPolicy
from kernelwright.store.connection.errors import StoreError
from kernelwright.store.database import Store
from tests.agent.command_in_process import agent_here
from tests.agent.command_line.processes import descendants

ROOT = Path(__file__).parents[3]


def command(folder: Path, *arguments: str) -> tuple[list[str], dict]:
    told = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200", "NO_COLOR": "1"}
    told.pop("OPENAI_API_KEY", None)
    return [sys.executable, "-m", "kernelwright.agent", "solve", *arguments], {
        "cwd": folder,
        "env": told,
        "text": True,
    }


def solve(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line, how = command(folder, *arguments)
    return subprocess.run(line, capture_output=True, timeout=500, **how)


def solve_here(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has torch and a judge already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        return agent_here("solve", *arguments, folder=folder)


def refused(folder: Path, *arguments: str, code: Exit = Exit.BAD_INPUT) -> str:
    """The one line on stderr; no traceback, nothing on stdout."""
    done = solve_here(folder, *arguments)
    assert done.returncode == code, done.stderr + done.stdout
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def script(tmp_path_factory, unfinished, right):
    """Eight answers: six that the text alone refuses, one without code, then the right one. Each takes a moment."""
    answers = [
        *(unfinished(k) for k in range(3)),
        "no code",
        *(unfinished(k) for k in range(3, 6)),
        right,
    ]
    path = tmp_path_factory.mktemp("script") / "script.json"
    path.write_text(json.dumps({"answers": answers, "seconds": 0.3}))
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory, script):
    """The folder in which the script was followed to its end, and what the command told."""
    folder = tmp_path_factory.mktemp("whole")
    done = solve(
        folder, "fused silu", "--policy", f"scripted:{script}", "--device", "cpu", "--json"
    )
    assert done.returncode == Exit.DONE, done.stderr
    return folder, done


@pytest.mark.slow
def test_a_solve_ends_with_a_file_that_says_where_it_comes_from_and_how_far_it_was_verified(
    tmp_path, script, whole
):
    folder, done = whole

    solved = json.loads(done.stdout)
    assert solved["stop_reason"] == "target_reached"
    assert (solved["spent"]["turns"], solved["turn"], solved["speedup"]) == (8, 7, None)
    assert solved["seconds"] > solved["spent"]["seconds"], (
        "the start-up and the trial of the reference are waited for, too"
    )
    assert "not run on a GPU" in solved["verified"]
    assert (folder / ".kernelwright" / "runs.db").is_file()
    text = (folder / solved["output"]).read_text()
    assert text.startswith("# Written by kernelwright")
    assert solved["written_by"] == f"policy scripted:{script}"
    assert f"# written by {solved['written_by']}\n" in text
    assert solved["verified"] in text.replace("\n#            ", " "), (
        "lines over 120 columns are folded"
    )
    assert "# contract   input       x: float32 (rows, columns), contiguous\n" in text
    assert "this very text was judged once more and is correct" in text
    compile(text, "kernel", "exec")

    own = tmp_path / "fused_silu_triton.py"
    own.write_text("# mine\n")
    assert "name another file with --out" in refused(
        tmp_path, "fused silu", "--policy", f"scripted:{script}"
    )
    assert own.read_text() == "# mine\n"


@pytest.mark.slow
def test_killed_at_random_moments_the_same_command_completes_and_nothing_differs(
    tmp_path, script, whole
):
    """`kill -9`; tests/agent/batch/test_batch_kills.py does this fifty times to a batch."""
    folder, _ = whole
    killed = tmp_path / "killed.db"
    asked = ("fused silu", "--policy", f"scripted:{script}", "--device", "cpu")
    dice, kills = random.Random(5), 0
    while kills < 2 and not _finished(
        killed
    ):  # on a loaded machine it may be done sooner, and the command would begin anew
        kills += 1
        line, how = command(tmp_path, *asked, "--db", str(killed))
        process = subprocess.Popen(
            line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **how
        )
        _wait_for_a_new_turn(process, killed)
        time.sleep(dice.uniform(0.0, 0.8))
        process.kill()
        process.wait()
    assert kills
    if not _finished(killed):
        assert solve_here(tmp_path, *asked, "--db", str(killed)).returncode == 0
    assert history(killed) == history(folder / ".kernelwright" / "runs.db")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stop", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "scancel"]
)
def test_a_signal_pauses_and_the_same_command_goes_on(stop, status, tmp_path, script):
    """A batch scheduler sends SIGTERM to every process of a job, those of candidates and of the compiler included."""
    asked = ("fused silu", "--policy", f"scripted:{script}", "--device", "cpu", "--db", "runs.db")
    line, how = command(tmp_path, *asked, "--json")
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)
    _wait_for_a_new_turn(process, tmp_path / "runs.db")
    receivers = [process.pid] if stop is signal.SIGINT else [*descendants(process.pid), process.pid]
    for receiver in receivers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(receiver, stop)
    out, err = process.communicate(timeout=500)
    assert process.returncode == status, err
    assert "pausing; the same command goes on from here\n" in err
    paused = json.loads(out)
    assert paused["stop_reason"] == "interrupted"
    done = solve_here(tmp_path, *asked, "--json")
    assert done.returncode == Exit.DONE, done.stderr
    solved = json.loads(done.stdout)
    assert solved["resumed"]
    assert solved["trajectory_id"] == paused["trajectory_id"]
    assert [entry[0] for entry in history(tmp_path / "runs.db")[0]] == list(range(8))


def test_an_interrupt_right_after_the_row_is_written_lets_go_of_it(
    tmp_path, unfinished, monkeypatch
):
    """Before the tools are started, and before anybody knows the trajectory's number."""
    begin = Store.begin

    def begun(store, *arguments, **options):
        found = begin(store, *arguments, **options)
        signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setattr(Store, "begin", begun)
    path, settings = tmp_path / "runs.db", Settings(policy="scripted:one", device="cpu")
    how = {
        "db": str(path),
        "output": tmp_path / "k.py",
        "watch": lambda run, doing: None,
        "say": lambda step: None,
    }
    with pytest.raises(KeyboardInterrupt):
        solve_problem(find_by_name("fused_silu"), ScriptedPolicy([unfinished(1)]), settings, **how)
    with Store.open(path, readonly=True) as store:
        assert [(row.stop_reason, row.finished, row.owner) for row in store.trajectories()] == [
            ("interrupted", None, "")
        ]


def _wait_for_a_new_turn(process, path):
    """Until this process has written something."""
    before = _turns(path)
    for _ in range(1200):
        if process.poll() is not None or _turns(path) > before:
            return
        time.sleep(0.05)


def _finished(path):
    if _turns(path) == 0:
        return False
    with Store.open(path, readonly=True) as store:
        return all(row.finished is not None for row in store.trajectories())


def _turns(path):
    if not path.exists():
        return 0
    try:
        with Store.open(path, readonly=True) as store:
            return store.count()
    except StoreError:  # its tables are being made
        return 0


def history(path):
    """Everything that two runs of one script must share."""
    with Store.open(path, readonly=True) as store:
        found = []
        for trajectory in store.trajectories(newest=False):
            turns = store.turns(trajectory.id)
            numbers = {turn.candidate_id: turn.turn for turn in turns}
            found.append([
                (t.turn, t.action, numbers.get(t.parent_id), t.messages, t.source, t.report.failure, t.report.correct,
                trajectory.stop_reason)
                for t in turns
            ])  # fmt: skip
        return found


def test_a_dry_run_shows_the_prompt_and_does_nothing(tmp_path, script):
    done = solve_here(
        tmp_path, "fused silu", "--policy", f"scripted:{script}", "--device", "cpu", "--dry-run"
    )
    assert done.returncode == Exit.DONE
    assert "class Model(nn.Module)" in done.stdout
    assert "nothing was asked" in done.stdout
    assert not list(tmp_path.iterdir())
    plan = json.loads(solve_here(tmp_path, "fused silu", "--policy", "openai:nobody@http://127.0.0.1:9/v1", "--device",
        "cpu", "--dry-run", "--json").stdout)  # fmt: skip
    assert plan["most_dollars"] is None, "an unknown price stays unknown"
    assert [message["role"] for message in plan["messages"]] == ["system", "user"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fused silu", "--policy", "gpt"), "no policy 'gpt'"),
        (("a problem that nobody has",), "a problem that nobody has"),
        (("fused silu", "--search", "wide"), "choose serial"),
        (("fused silu", "--goal", "speedup:fast"), "choose correct"),
        (("fused silu", "--goal", "speedup:2", "--device", "cpu"), "no speed is measured on a CPU"),
        (("fused silu", "--policy", "scripted:nowhere.json"), "cannot read the script"),
        (("fused silu", "--prompts", "nowhere", "--policy", "openai:m@http://127.0.0.1:9/v1"),
        "there is no folder nowhere"),
        (("fused silu", "--turns", "0"), "--turns"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_in_one_line(tmp_path, arguments, said):
    assert re.search(re.escape(said), refused(tmp_path, *arguments))
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_down_pauses_the_run(tmp_path):
    policy = "openai:nobody@http://127.0.0.1:9/v1"
    done = solve_here(
        tmp_path, "fused silu", "--policy", policy, "--patience", "0", "--device", "cpu", "--json"
    )
    assert done.returncode == Exit.INFRASTRUCTURE
    assert "no connection to http://127.0.0.1:9/v1" in done.stderr, (
        "said before anything is waited for"
    )
    assert "asked again for up to 0 s (--patience)" in done.stderr
    solved = json.loads(done.stdout)
    assert solved["stop_reason"] == "infrastructure"
    assert "is the server up?" in solved["message"]
    assert solved["spent"]["turns"] == 0


def test_a_wrong_key_is_told_at_once(tmp_path):
    from tests.policies.loopback import loopback

    def no_entry(handler):
        handler.say({"error": {"message": "invalid key", "code": "invalid_api_key"}}, status=401)

    with loopback(no_entry) as server:
        done = solve_here(
            tmp_path,
            "fused silu",
            "--policy",
            f"openai:m@{server.url}",
            "--device",
            "cpu",
            "--json",
        )
        assert len(server.asked) == 1, "never asked again"
    assert done.returncode == Exit.BAD_INPUT
    assert json.loads(done.stdout)["stop_reason"] == "refused"


@pytest.mark.slow
def test_a_database_of_another_program_is_refused(tmp_path, script):
    (tmp_path / "other.db").write_text("not a database at all, but long enough to be one" * 30)
    done = solve(
        tmp_path,
        "fused silu",
        "--policy",
        f"scripted:{script}",
        "--device",
        "cpu",
        "--db",
        "other.db",
    )
    assert done.returncode == Exit.BAD_INPUT
    assert "is not a kernelwright database" in done.stderr
    assert done.stderr.count("\n") == 1

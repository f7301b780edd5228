"""`agent batch`, `inspect`, `recheck`, `report`, `export` and `db` with the URL of a PostgreSQL server."""

import json
import subprocess
import sys

import pytest

from kernelwright.store.database import Store
from tests.postgres_server import PASSWORD, postgres_server

pytestmark = [pytest.mark.slow, pytest.mark.nightly]
SECONDS = 400
OLD = "an older one"


@pytest.fixture(scope="module")
def server():
    with postgres_server() as found:
        yield found


@pytest.fixture
def agent(tmp_path):
    """`agent(*words)`: the command as a user gives it, in a folder of its own; it tells nobody the password."""

    def asked(*words, ends=0):
        command = [sys.executable, "-m", "kernelwright.agent", *words]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == ends, done.stderr
        assert PASSWORD not in done.stdout + done.stderr
        return done.stdout

    return asked


def test_a_batch_on_a_server_goes_on_is_read_and_is_judged_again_with_its_rewards(
    server, agent, batch_script, tmp_path
):
    where = server.new_place()
    batch = (
        "batch",
        "fused_silu",
        "row_sum",
        "--samples",
        "2",
        "--turns",
        "2",
        "--policy",
        f"scripted:{batch_script}",
    )
    for correct_here in (2, 0):  # the second time all is done already
        told = json.loads(
            agent(*batch, "--draft", "policy", "--run", "first", "--db", where, "--json")
        )
        assert (told["standing"]["done"], told["standing"]["correct"]) == (4, correct_here)
    with Store.open(where) as store:
        turns = list(store.samples())
        assert len(turns) == 8
        for turn in turns:
            report = turn.report.with_(environment=turn.report.environment.with_(evaluator=OLD))
            store.judge(turn.candidate_id, report, rewards={"gate": 0.0}, formula="default@1")
    listed = agent("inspect", "--plain", "--db", where)
    assert listed.count("fused_silu") == 2
    rechecked = json.loads(agent("recheck", "--db", where, "--json"))
    assert rechecked["here"] == rechecked["candidates"] == 4
    assert rechecked["changed"] == []
    assert [(one["note"], one["stored"] > 0) for one in rechecked["rewards"]] == [("", True)]
    assert json.loads(agent("recheck", "--db", where, "--json"))["before"] == 4
    assert "fused_silu" in agent("db", "search", "sigmoidal", "--db", where)
    assert "postgresql+psycopg://tester:***@127.0.0.1" in agent("db", "stats", "--db", where)
    agent("report", "first", "--markdown", "--db", where)
    agent("export", "--run", "first", "--format", "py", "--out", "kernels", "--db", where)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".py" for path in files)
    assert not any(PASSWORD.encode() in path.read_bytes() for path in files)


def test_a_wrong_password_ends_a_batch_in_one_line_before_anything_is_judged(
    server, agent, batch_script, tmp_path
):
    where = server.new_place().replace(PASSWORD, "guessed")
    command = ["batch", "fused_silu", "--policy", f"scripted:{batch_script}", "--db", where]
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright.agent", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 3
    [line] = done.stderr.splitlines()
    assert "password authentication failed" in line
    assert "guessed" not in line

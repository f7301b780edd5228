"""JudgeClient and the commands that use a service."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kernelwright
from kernelwright.agent.serving.evaluating import ServiceEvaluator
from kernelwright.agent.serving.requests import JudgeServiceError, ServiceBusy, pause_seconds
from kernelwright.errors import InputError
from kernelwright.tools.problem import Problem, ProblemError

ROOT = Path(__file__).parents[3]
ALICE = "alice-0123456789abcdef"
GOOD = ROOT / "tests" / "kernels" / "good"


@pytest.fixture
def client(server):
    with kernelwright.JudgeClient(server.url, token=ALICE) as found:
        yield found


def agent(*arguments, token=ALICE, folder=None):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "KERNELWRIGHT_TOKEN": token}
    command = [sys.executable, "-m", "kernelwright.agent", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, timeout=500
    )


@pytest.mark.slow
def test_one_candidate_is_scored_and_a_broken_one_is_a_value(client, right_code, text_only):
    verdict = client.score("fused silu", right_code, sizes=1)
    assert (verdict.correct, verdict.score.ended_at, verdict.speedup) == (True, "interpreted", None)
    assert isinstance(verdict.report, kernelwright.Report)
    broken = client.score("fused silu", text_only("client"))
    assert (broken.correct, broken.score.gate, broken.score.fault) == (False, 0.0, "entry_point")


def test_a_problem_may_be_a_value_or_a_file_of_this_side(client, tmp_path, text_only):
    problem = kernelwright.find_problem("fused silu")
    (tmp_path / "own.py").write_text(problem.source)
    by_value = client.submit(problem, text_only("value"))
    by_file = client.submit(tmp_path / "own.py", text_only("file"))
    assert (by_value.problem, by_value.problem_hash) == ("fused_silu", problem.hash)
    assert by_file.problem_hash == problem.hash


def test_many_candidates_come_back_in_their_order(client, text_only):
    asked = [("fused silu", text_only(("many", k % 3))) for k in range(7)]
    verdicts = client.score_many(asked)
    assert [verdict.verdict_id for verdict in verdicts[:4]] == [
        verdict.verdict_id for verdict in verdicts[3:]
    ]
    assert len({verdict.verdict_id for verdict in verdicts}) == 3


def test_an_event_loop_scores_many_side_by_side(client, text_only):
    asked = [("fused silu", text_only(("async", k))) for k in range(5)]
    verdicts = asyncio.run(client.score_many_async(asked))
    assert len({verdict.verdict_id for verdict in verdicts}) == 5
    assert not any(verdict.correct for verdict in verdicts)


def test_a_task_that_is_cancelled_cancels_its_verdict(client, hangs, monkeypatch):
    ask, answered = client._ask_async, asyncio.Event()

    async def asking(*arguments, **options):
        answer = await ask(*arguments, **options)
        answered.set()
        return answer

    async def given_up():
        scoring = asyncio.create_task(
            client.score_async("fused silu", hangs("task"), compile_seconds=3, sizes=1)
        )
        await answered.wait()  # it has been taken, and is waited for
        scoring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await scoring

    monkeypatch.setattr(client, "_ask_async", asking)
    asyncio.run(given_up())
    status = client.submit("fused silu", hangs("task"), compile_seconds=3, sizes=1)
    assert status.known
    client.cancel(status.verdict_id)


def test_what_was_submitted_waits_for_its_verdict_as_a_future_does(client, text_only):
    submitted = client.submit("fused silu", text_only("submitted"))
    verdict = submitted.result()
    assert verdict.report.candidate_hash == submitted.candidate_hash
    assert verdict == client.result(submitted)


def test_events_are_told_until_the_end(client, text_only):
    status = client.submit("fused silu", text_only("told"))
    events = list(client.events(status.verdict_id))
    assert events[-1][0] == "end"
    assert json.loads(events[-1][1])["state"] == "finished"
    with pytest.raises(InputError, match="there is no verdict"):
        list(client.events("0" * 32))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"turbo": True}, "turbo"),
        ({"sizes": 100}, "sizes"),
        ({"device": "tpu"}, "choose cpu, cuda"),
        ({"device": "cuda"}, "judges on cpu only"),
    ],
)
def test_what_cannot_be_asked_is_an_input_error(client, right_code, asked, says):
    with pytest.raises(InputError, match=says):
        client.score("fused silu", right_code, **asked)


@pytest.mark.parametrize("problem", [None, 5, b"fused silu"])
def test_what_names_no_problem_is_an_input_error(client, right_code, problem):
    with pytest.raises(InputError, match="give a name"):
        client.score(problem, right_code)


@pytest.mark.parametrize("code", ["x = 1\0\n", "# \ud800\n", ""])
def test_a_text_that_no_editor_writes_is_the_candidates_fault(client, code):
    verdict = client.score("fused silu", code)
    assert (verdict.score.ended_at, verdict.score.mask) == ("source", False)


def test_a_text_that_the_service_does_not_read_ends_no_batch(client):
    problem = kernelwright.find_problem("fused silu")
    report = ServiceEvaluator(client).evaluate(problem, "x = 1\n" * 50_000)
    assert (report.ended_at, report.failure.fault) == ("source", "no_code")
    assert "at most 262,144" in report.failure.message


def test_a_reference_that_cannot_be_used_is_a_problem_error(client, right_code):
    source = kernelwright.find_problem("fused silu").source
    broken = Problem(name="broken", source=source.replace("torch.rand", "torch.no_such_function"))
    assert broken.source != source
    with pytest.raises(ProblemError, match="no_such_function"):
        client.score(broken, right_code, sizes=0)


def test_a_wrong_token_and_an_address_where_nobody_is_fail_at_once(server, right_code):
    with pytest.raises(InputError, match="KERNELWRIGHT_TOKEN"):
        kernelwright.JudgeClient(server.url, token="wrong").submit("fused silu", right_code)
    began = time.monotonic()
    with pytest.raises(JudgeServiceError, match="is agent serve running there"):
        kernelwright.JudgeClient("http://127.0.0.1:1").submit("fused silu", right_code)
    assert time.monotonic() - began < 300, "not the ten minutes of its patience"
    with pytest.raises(InputError, match="no address"):
        kernelwright.JudgeClient("judge:8700")
    with pytest.raises(InputError, match="copy it once more"):
        kernelwright.JudgeClient(server.url, token="tökén")


def test_pauses_follow_the_service_grow_without_it_and_differ():
    assert 3.0 <= pause_seconds(0, ServiceBusy("full", 4.0)) <= 5.0
    assert pause_seconds(20, ServiceBusy("away", None)) <= 37.5
    assert len({pause_seconds(3, ServiceBusy("away", None)) for _ in range(5)}) == 5


@pytest.mark.slow
@pytest.mark.nightly
def test_agent_check_at_a_server_says_what_it_says_here(server, tmp_path):
    right = agent(
        "check",
        GOOD / "fused_silu.py",
        "-p",
        "fused silu",
        "--server",
        server.url,
        "--sizes",
        1,
        "--json",
    )
    assert right.returncode == 0, right.stderr
    assert json.loads(right.stdout)["correct"]
    again = agent(
        "check",
        GOOD / "fused_silu.py",
        "-p",
        "fused silu",
        "--server",
        server.url,
        "--sizes",
        1,
        "--json",
    )
    assert json.loads(again.stdout)["cached"]
    refused = agent(
        "check", GOOD / "fused_silu.py", "-p", "fused silu", "--server", server.url, "--show-trace"
    )
    assert (refused.returncode, "--show-trace" in refused.stderr) == (2, True)
    wrong = agent(
        "check", GOOD / "fused_silu.py", "-p", "row sum", "--server", server.url, "--sizes", 1
    )
    assert wrong.returncode == 1
    assert "shape" in wrong.stdout
    refused = agent(
        "check", GOOD / "fused_silu.py", "-p", "fused silu", "--server", server.url, token="nobody"
    )
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    nobody = agent(
        "check", GOOD / "fused_silu.py", "-p", "fused silu", "--server", "http://127.0.0.1:1"
    )
    assert (nobody.returncode, len(nobody.stderr.splitlines())) == (3, 1)


@pytest.mark.slow
@pytest.mark.nightly
def test_agent_batch_at_a_server_has_the_outcomes_that_it_has_here(server, batch_script, tmp_path):
    problems = ["--problems", "fused_silu", "--problems", "vector_add", "--problems", "row_sum"]
    told = agent(
        "batch", *problems, "--policy", f"scripted:{batch_script}", "--turns", 3, "--server", server.url, "--json",
        folder=tmp_path,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    standing = json.loads(told.stdout)["standing"]
    assert (standing["done"], standing["correct"]) == (3, 2)

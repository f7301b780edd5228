"""Verdicts that hang: the server ends their judge's process, and the next verdict is right."""

import time

import httpx2
import pytest

import kernelwright
from kernelwright.agent.serving.requests import JudgeServiceError, VerdictNotInTime

from .conftest import ALICE, RunningServer

LIMIT = 12.0
SLACK = 120.0
"""Seconds that a loaded machine needs beyond a limit, for another judge to start and to make a verdict."""
SLEEPING = """import time
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        time.sleep(10_000)
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
"""
NEVER_BY_ITSELF = {"sizes": 1, "compile_seconds": 600.0, "seconds": 1200.0}


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    server = RunningServer(tmp_path_factory.mktemp("limited"), "--verdict-seconds", str(LIMIT))
    yield server
    server.stop()


@pytest.fixture
def client(limited):
    with kernelwright.JudgeClient(limited.url) as judge:
        yield judge


def follow(client, verdict_id):
    """The status once it has ended, and the seconds until then."""
    began = time.monotonic()
    while not (status := client.status(verdict_id, wait=30.0)).state.ended:
        assert time.monotonic() - began < LIMIT + SLACK
    return status


def reach_the_hang(client, verdict_id):
    """Waits until the candidate's host code runs: a verdict that is cancelled before stops at a step, and its judge
    lives on.
    """
    deadline = time.monotonic() + 2 * SLACK
    while (status := client.status(verdict_id)).doing != "tracing":
        assert not status.state.ended, status
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("hanging", ["reference", "candidate"])
def test_a_verdict_that_hangs_is_ended_at_the_servers_limit_and_not_repeated(
    client, limited, hangs, hanging
):
    judge = limited.judge()
    if hanging == "reference":
        problem = kernelwright.Problem(name="sleeping", source=SLEEPING)
        submitted = client.submit(
            problem, "import triton\n@triton.jit\ndef k(): pass\nclass ModelNew: pass\n"
        )
    else:
        submitted = client.submit("fused_silu", hangs("limit"), **NEVER_BY_ITSELF)
    ended = follow(client, submitted.verdict_id)
    assert ended.state == "failed"
    assert [attempt.outcome for attempt in ended.attempts] == ["timed_out"]
    assert (ended.error.code, "more than 12 s" in ended.error.message) == ("timeout", True)
    assert "--verdict-seconds" in ended.error.message
    assert LIMIT <= ended.ended - ended.started < LIMIT + SLACK
    assert judge not in limited.processes()
    with pytest.raises(JudgeServiceError, match="more than 12 s"):
        client.result(ended)


@pytest.mark.slow
def test_what_waits_behind_a_verdict_that_hangs_is_judged_by_another_process(
    client, hangs, text_only
):
    submitted = client.submit("fused_silu", hangs("before"), **NEVER_BY_ITSELF)
    behind = client.score("fused_silu", text_only("behind"))
    assert (behind.report.ended_at, behind.attempts) == ("source", 1)
    assert client.status(submitted.verdict_id).state == "failed"


@pytest.mark.slow
def test_a_cancelled_verdict_that_hangs_lets_its_judge_go_after_a_grace(server, hangs):
    """On a server whose limit is ten minutes, so that the grace alone can end the judge."""
    judge = server.judge()
    with kernelwright.JudgeClient(server.url, ALICE) as client:
        submitted = client.submit("fused_silu", hangs("cancelled"), **NEVER_BY_ITSELF)
        reach_the_hang(client, submitted.verdict_id)
        client.cancel(submitted.verdict_id)
        ended = follow(client, submitted.verdict_id)
    assert (ended.state, [attempt.outcome for attempt in ended.attempts]) == (
        "cancelled",
        ["cancelled"],
    )
    assert judge not in server.processes()


def test_a_client_waits_no_longer_than_its_timeout_and_withdraws_the_verdict(client, hangs):
    began = time.monotonic()
    with pytest.raises(VerdictNotInTime, match="no verdict within 2 s"):
        client.score("fused_silu", hangs("timeout"), timeout=2.0, **NEVER_BY_ITSELF)
    assert time.monotonic() - began < 2.0 + SLACK
    submitted = client.submit("fused_silu", hangs("result"), **NEVER_BY_ITSELF)
    with pytest.raises(VerdictNotInTime):
        submitted.result(timeout=0.5)
    assert follow(client, submitted.verdict_id).state == "cancelled"


def test_a_limit_of_no_second_is_refused(tmp_path):
    refused = RunningServer(tmp_path, "--verdict-seconds", "0")
    assert refused.process.wait(100) == 2


def test_the_limit_covers_a_server_that_answers_no_more(limited):
    """The client's own limit holds where the service is away, too."""
    with kernelwright.JudgeClient(limited.url, patience=600.0) as judge:
        judge.queue()
        judge._http.base_url = httpx2.URL("http://127.0.0.1:9")
        began = time.monotonic()
        with pytest.raises(JudgeServiceError):
            judge.score("fused_silu", "x", timeout=1.0)
        assert time.monotonic() - began < SLACK

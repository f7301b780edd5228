"""A server that is stopped, killed, or loses its judge: nothing is lost, and every attempt is recorded."""

import os
import signal
import time

import httpx2
import psutil
import pytest

from kernelwright.agent.serving.wire import Status

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


def ask(server, method, path, **what):
    return httpx2.request(method, server.url + path, timeout=500, **what)


def submit(server, body):
    return ask(server, "POST", "/v1/verdicts", json=body).json()["verdict_id"]


def ended(server, verdict_id):
    while True:
        answer = ask(server, "GET", f"/v1/verdicts/{verdict_id}", params={"wait": 30})
        status = Status.model_validate_json(answer.content)
        if status.state.ended:
            return status


def read(server, verdict_id):
    return Status.model_validate_json(ask(server, "GET", f"/v1/verdicts/{verdict_id}").content)


def begun(server, verdict_id):
    """Waits until a judge has begun the verdict."""
    deadline = time.monotonic() + 400
    while read(server, verdict_id).state != "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def outcomes(status):
    return [attempt.outcome for attempt in status.attempts]


def gone(processes):
    deadline = time.monotonic() + 400
    while any(psutil.pid_exists(one) for one in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_a_server_killed_in_mid_verdict_and_started_again_finishes_what_was_asked(
    serve, submission, right_code, text_only
):
    server = serve()
    with server.frozen_judge():
        first = submit(server, submission(right_code))
        second = submit(server, submission(text_only("waits")))
        begun(server, first)
        below = server.processes()
        server.process.kill()
        server.process.wait(500)
    assert gone(below), "its judges end by themselves"
    again = serve()
    status = ended(again, first)
    assert outcomes(status) == ["lost", "finished"]
    assert status.attempts[0].message == "the server ended in the middle of this verdict"
    assert status.report.correct
    assert outcomes(ended(again, second)) == ["finished"]
    known = ask(again, "POST", "/v1/verdicts", json=submission(text_only("waits"))).json()
    assert (known["known"], known["state"], len(known["attempts"])) == (True, "finished", 1)


def test_ctrl_c_ends_cleanly_and_what_was_under_way_is_begun_again_by_the_next_server(
    serve, submission, text_only
):
    server = serve()
    with server.frozen_judge():
        verdict_id = submit(server, submission(text_only("stopped")))
        begun(server, verdict_id)
        below = server.processes()
        with httpx2.stream(
            "GET", f"{server.url}/v1/verdicts/{verdict_id}/events", timeout=500
        ) as stream:
            events = stream.iter_lines()
            assert next(events) == "event: status"
            assert server.stop(signal.SIGINT) == 130
            assert "event: end" not in list(events)
    said = [
        line for line in server.said if "http://" not in line and "starting the judges" not in line
    ]
    assert said == ["agent: interrupted\n"]
    assert gone(below)
    assert outcomes(ended(serve(), verdict_id)) == ["interrupted", "finished"]


def test_a_judge_that_is_killed_is_started_again_and_the_attempt_is_recorded_as_lost(
    serve, submission, text_only
):
    server = serve()
    with server.frozen_judge() as judge:
        verdict_id = submit(server, submission(text_only("judge")))
        begun(server, verdict_id)
        os.kill(judge, signal.SIGKILL)
    status = ended(server, verdict_id)
    assert outcomes(status) == ["lost", "finished"]
    assert "the judge cpu:0 died" in status.attempts[0].message


def test_a_verdict_that_kills_its_judge_each_time_is_given_up_and_says_so(serve, submission, hangs):
    server = serve()
    verdict_id = submit(
        server, submission(hangs("always"), options={"compile_seconds": 600, "sizes": 1})
    )
    for lost in range(3):
        deadline = time.monotonic() + 400
        while outcomes(read(server, verdict_id)) != ["lost"] * lost + ["running"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(server.judge(), signal.SIGKILL)
    status = ended(server, verdict_id)
    assert (status.state, status.error.code) == ("failed", "lost")
    assert status.error.message.startswith("given up after 3 attempts: the judge cpu:0 died")
    assert outcomes(status) == ["lost"] * 3


def test_two_servers_do_not_share_a_record(serve):
    serve()
    second = serve()
    assert second.process.wait(500) == 2
    assert (
        second.said[-1]
        == "agent: another server uses .kernelwright/service.db: stop it, or give another --store\n"
    )


def test_a_server_that_others_can_reach_needs_tokens(serve):
    server = serve("--host", "0.0.0.0")
    assert server.process.wait(500) == 2
    assert "--token-file" in server.said[-1]


def test_a_full_queue_and_a_quota_are_answered_with_429_and_when_to_come_again(
    serve, submission, text_only
):
    server = serve("--queue", "2", "--client-pending", "4", "--client-per-minute", "6")
    with server.frozen_judge():
        running = submit(server, submission(text_only("running")))
        ids = [submit(server, submission(text_only(k))) for k in range(2)]
        full = ask(server, "POST", "/v1/verdicts", json=submission(text_only("one too many")))
        known = ask(server, "POST", "/v1/verdicts", json=submission(text_only(1))).json()
        ask(server, "POST", "/v1/verdicts", json=submission(text_only("running")))
        quota = ask(server, "POST", "/v1/verdicts", json=submission(text_only("a seventh")))
    assert (full.status_code, full.json()["error"]["code"]) == (429, "queue_full")
    assert int(full.headers["retry-after"]) >= 1
    assert (known["verdict_id"], known["pending"], known["pending_quota"]) == (ids[1], 3, 4)
    assert (quota.status_code, quota.json()["error"]["code"]) == (429, "quota")
    assert 1 <= int(quota.headers["retry-after"]) <= 60
    assert all(ended(server, verdict_id).state == "finished" for verdict_id in [running, *ids])

"""Submitting, following and cancelling over HTTP, with the real judge."""

import json
import re

import httpx2
import pytest

from kernelwright.agent.serving.wire import ErrorBody, Status

UNKNOWN = "0" * 32
BOB = {"Authorization": "Bearer bob-0123456789abcdef"}


def ended(http, verdict_id):
    """Waits for a verdict."""
    while True:
        status = Status.model_validate_json(
            http.get(f"/v1/verdicts/{verdict_id}", params={"wait": 30}).content
        )
        if status.state.ended:
            return status


def code_of(answer):
    """Of an answer that is an error, in the form that all errors have."""
    return ErrorBody.model_validate_json(answer.content).error.code


def test_a_right_candidate_is_judged_and_its_report_is_that_of_agent_check(
    http, submission, right_code
):
    answer = http.post("/v1/verdicts", json=submission(right_code + "\nASKED_FIRST = 1\n"))
    assert answer.status_code == 202
    status = ended(http, answer.json()["verdict_id"])
    assert answer.headers["location"] == f"/v1/verdicts/{status.verdict_id}"
    assert (status.state, status.report.correct, status.score.correct) == ("finished", True, True)
    assert (status.report.problem, status.report.judged_on) == ("fused_silu", "cpu")
    assert status.score.ended_at == "interpreted"
    [attempt] = status.attempts
    assert (attempt.number, attempt.judge, attempt.outcome) == (1, "cpu:0", "finished")


def test_the_same_content_is_judged_once_whatever_its_layout_and_whoever_asks(
    http, submission, text_only
):
    first = http.post("/v1/verdicts", json=submission(text_only("once"))).json()
    status = ended(http, first["verdict_id"])
    assert not first["known"]
    again = http.post(
        "/v1/verdicts", json=submission("# a comment\n" + text_only("once")), headers=BOB
    )
    assert again.status_code == 200
    assert (again.json()["verdict_id"], again.json()["known"]) == (status.verdict_id, True)
    assert again.json()["report"]["failure"]["fault"] == "entry_point"
    assert len(again.json()["attempts"]) == 1


@pytest.mark.parametrize("other", [{"options": {"sizes": 2}}, {"problem": {"name": "row_sum"}}])
def test_other_options_and_another_problem_are_other_verdicts(http, submission, text_only, other):
    first = http.post("/v1/verdicts", json=submission(text_only("other"))).json()
    second = http.post("/v1/verdicts", json={**submission(text_only("other")), **other}).json()
    assert first["verdict_id"] != second["verdict_id"]


def test_a_problem_may_be_given_by_its_source(http, submission, text_only):
    source = http.get("/v1/problems/fused silu").json()["source"]
    body = {**submission(text_only("source")), "problem": {"name": "mine", "source": source}}
    status = ended(http, http.post("/v1/verdicts", json=body).json()["verdict_id"])
    assert (status.state, status.report.problem) == ("finished", "mine")


def test_a_compile_only_verdict_needs_no_interpreter(http, submission, right_code):
    body = submission(right_code, options={"interpret": False}, device="cpu")
    status = ended(http, http.post("/v1/verdicts", json=body).json()["verdict_id"])
    assert (status.score.compiled, status.score.ended_at, status.report.interpreted) == (
        True,
        "compile",
        None,
    )


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"problem": {"name": "/etc/passwd"}}, "no name of the catalogue"),
        ({"problem": {"name": "../catalogue/fused_silu.py"}}, "no name of the catalogue"),
        ({"problem": {"name": "kernelbench:1/1"}}, "no name of the catalogue"),
        ({"problem": {"name": "nothing of that kind at all"}}, "no problem 'nothing of that kind"),
        ({"problem": {"name": "softmax of rows"}}, "fused_softmax"),
        ({"problem": "fused_silu"}, "problem: must be an object"),
        ({"problem": {}}, "give a name"),
        ({"problem": {"source": "x = 1"}}, "lacks Model"),
        ({"candidate": 5}, "candidate: must be a text"),
        ({"candidate": "x" * (256 * 1024 + 1)}, "longer than"),
        ({"options": {"sizes": 65}}, "options.sizes: must be at most 64"),
        ({"options": {"sizes": "3"}}, "options.sizes: must be a whole number"),
        ({"options": {"targets": ["sm_90"] * 17}}, "options.targets: has 17 entries: give at most"),
        ({"options": {"own_work": "none"}}, "choose strict"),
        ({"options": {"targets": ["sm_12345"]}}, "options.targets"),
        ({"options": {"allow_import": ["os"]}}, "not started with it"),
        ({"options": {"ncu": True}}, "need a GPU"),
        ({"options": {"turbo": True}}, "options.turbo: is not known here"),
        ({"device": "cuda"}, "judges on cpu only"),
        ({"device": "tpu"}, "device: must be 'cpu' or 'cuda'"),
    ],
)
def test_a_submission_that_cannot_be_used_is_refused_with_one_line(
    http, submission, text_only, changed, says
):
    answer = http.post("/v1/verdicts", json={**submission(text_only("refused")), **changed})
    assert answer.status_code == 422
    error = ErrorBody.model_validate_json(answer.content).error
    assert error.code == "invalid"
    assert says in error.message
    assert "\n" not in error.message


def test_what_is_no_json_is_refused(http):
    answer = http.post("/v1/verdicts", content=b"{", headers={"Content-Type": "application/json"})
    assert (answer.status_code, code_of(answer)) == (422, "invalid")


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/v1/nothing", 404, "GET /openapi.json"),
        ("POST", "/v1/verdicts/", 404, "GET /openapi.json"),
        ("PUT", "/v1/verdicts", 405, "Allow"),
    ],
)
def test_an_address_that_is_no_route_is_told_what_is(http, method, path, status, says):
    answer = http.request(method, path, json={})
    assert answer.status_code == status
    assert says in ErrorBody.model_validate_json(answer.content).error.message


def test_a_wrong_token_opens_no_route_but_those_that_need_none(http, server):
    paths = json.loads(httpx2.get(f"{server.url}/openapi.json").content)["paths"]
    routes = [(method, path) for path, methods in paths.items() for method in methods]
    assert len(routes) == 22
    for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"}):
        for method, path in routes:
            place = re.sub(r"{\w+}", UNKNOWN if "verdict" in path else "1", path)
            answer = httpx2.request(
                method, server.url + place, headers=given, json={} if method == "post" else None
            )
            if path == "/v1/health":
                assert answer.status_code == 200
                continue
            assert (answer.status_code, code_of(answer)) == (401, "unauthorized"), (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"


def test_a_body_that_is_not_announced_as_json_is_refused_with_the_header_to_send(
    http, submission, text_only
):
    body = json.dumps(submission(text_only("curl")))
    for kind in ("application/x-www-form-urlencoded", "text/plain"):
        answer = http.post("/v1/verdicts", content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")
        assert "Content-Type: application/json" in answer.json()["error"]["message"]


def test_a_body_over_the_limit_is_refused_before_it_is_read(http, submission):
    big = submission("x" * (2**20 + 1))
    assert code_of(http.post("/v1/verdicts", json=big)) == "too_large"
    pieces = (b"x" * 2**16 for _ in range(2**10))  # 64 MiB without a Content-Length
    answer = http.post("/v1/verdicts", content=pieces, headers={"Content-Type": "application/json"})
    assert (answer.status_code, code_of(answer)) == (413, "too_large")


@pytest.mark.parametrize("way", ["", "/events"])
def test_a_verdict_that_is_not_there_is_a_404_and_no_stream(http, way):
    answer = http.get(f"/v1/verdicts/{UNKNOWN}{way}")
    assert (answer.status_code, code_of(answer)) == (404, "not_found")
    assert answer.headers["content-type"] == "application/json"


def test_events_tell_the_steps_and_end_with_the_report(http, submission, right_code):
    body = submission(right_code + "\nEVENTS = 1\n")
    verdict_id = http.post("/v1/verdicts", json=body).json()["verdict_id"]
    with http.sse(f"/v1/verdicts/{verdict_id}/events") as stream:
        events = [(event.event, json.loads(event.data)) for event in stream]
    kinds = [kind for kind, _ in events]
    assert kinds[0] == "status"
    assert kinds[-1] == "end"
    assert kinds.count("end") == 1
    steps = [told["doing"] for kind, told in events if kind == "progress"]
    assert any(step.startswith(("interpreting", "checking")) for step in steps), steps
    assert events[-1][1]["report"]["correct"]
    with http.sse(f"/v1/verdicts/{verdict_id}/events") as stream:
        assert [event.event for event in stream] == ["end"]


def test_a_batch_has_an_answer_for_each_and_one_that_is_refused_stops_no_other(
    http, submission, text_only
):
    asked = [submission(text_only(("batch", k))) for k in range(3)] + [
        submission("", name="/etc/passwd")
    ]
    answer = http.post("/v1/batches", json={"submissions": [*asked, asked[0]]}).json()
    ids = [entry["status"] and entry["status"]["verdict_id"] for entry in answer["verdicts"]]
    assert ids[0] == ids[4]
    assert len({*ids[:3]}) == 3
    assert (ids[3], answer["verdicts"][3]["error"]["code"]) == (None, "invalid")
    assert 'kernelwright_refused_total{code="invalid"}' in http.get("/metrics").text
    assert all(ended(http, one).state == "finished" for one in ids if one)


def test_one_client_s_cancelling_leaves_a_verdict_to_the_other_and_the_last_one_s_ends_it(
    http, server, submission, text_only
):
    waiting = submission(text_only("waits"))
    with server.frozen_judge():
        first = http.post("/v1/verdicts", json=submission(text_only("blocks"))).json()["verdict_id"]
        second = http.post("/v1/verdicts", json=waiting).json()
        assert (second["state"], second["position"]) == ("queued", 1)
        http.post("/v1/verdicts", json=waiting, headers=BOB)
        assert http.delete(f"/v1/verdicts/{second['verdict_id']}").json()["state"] == "queued"
        assert (
            http.delete(f"/v1/verdicts/{second['verdict_id']}", headers=BOB).json()["state"]
            == "cancelled"
        )
        assert http.delete(f"/v1/verdicts/{UNKNOWN}").status_code == 404
        anew = http.post("/v1/verdicts", json=waiting).json()
        assert (anew["known"], anew["state"]) == (True, "queued")
    assert ended(http, first).state == "finished"
    assert ended(http, second["verdict_id"]).state == "finished"


def test_a_running_verdict_that_nobody_wants_is_stopped_at_its_next_step(
    http, server, submission, right_code
):
    with server.frozen_judge() as judge:
        body = submission(right_code + "\nSTOPPED = 1\n", options={"sizes": 8})
        verdict_id = http.post("/v1/verdicts", json=body).json()["verdict_id"]
        assert http.delete(f"/v1/verdicts/{verdict_id}").json()["state"] == "running"
    status = ended(http, verdict_id)
    assert (status.state, status.report) == ("cancelled", None)
    assert [attempt.outcome for attempt in status.attempts] == ["cancelled"]
    assert judge == server.judge()


def test_a_fault_that_a_loaded_machine_may_cause_is_judged_anew_and_both_attempts_are_recorded(
    http, submission, hangs
):
    body = submission(hangs("twice"), options={"compile_seconds": 1, "sizes": 1})
    verdict_id = http.post("/v1/verdicts", json=body).json()["verdict_id"]
    assert ended(http, verdict_id).report.failure.fault == "timeout"
    assert http.post("/v1/verdicts", json=body).status_code == 202
    assert [attempt.outcome for attempt in ended(http, verdict_id).attempts] == [
        "finished",
        "finished",
    ]


def test_the_queue_the_list_the_metrics_and_the_rewards_know_what_was_judged(
    http, submission, text_only
):
    group = [submission(text_only(("group", k)), group="step-1") for k in range(2)]
    ids = [http.post("/v1/verdicts", json=body).json()["verdict_id"] for body in group]
    for verdict_id in ids:
        ended(http, verdict_id)
    queue = http.get("/v1/queue").json()
    [device] = queue["devices"]
    assert (
        device["device"],
        device["judges_alive"],
        device["judges_ready"],
        device["capacity"],
    ) == ("cpu", 1, 1, 1)
    assert http.get("/v1/health").json()["judges_ready"] == 1
    assert device["seconds_per_verdict"] > 0
    listed = [
        one["verdict_id"]
        for one in http.get("/v1/verdicts", params={"state": "finished"}).json()["verdicts"]
    ]
    assert set(ids) <= set(listed)
    rewards = http.get("/v1/rewards", params={"client": "alice"}).json()
    assert rewards["candidates"] >= 2
    assert rewards["groups"]["flat_wrong"] >= 1
    assert ("source", "entry_point") in [
        (reason["rung"], reason["fault"]) for reason in rewards["reasons"]
    ]
    metrics = http.get("/metrics").text
    assert re.search(
        r'kernelwright_verdicts_total{correct="false",device="cpu",fault="entry_point"', metrics
    )
    assert 'kernelwright_judges_alive{device="cpu"} 1.0' in metrics

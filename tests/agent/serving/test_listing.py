"""Lists of verdicts with filters and pages, CSV, several waits at once, and verdicts that are made again."""

import csv
import io
import time

import httpx2
import pytest

from .conftest import BOB

AS_BOB = {"Authorization": f"Bearer {BOB}"}


def submit(http, body, **more):
    return http.post("/v1/verdicts", json=body, **more).json()["verdict_id"]


def wait(http, verdict_ids):
    answer = http.post("/v1/verdicts/wait", json={"verdict_ids": verdict_ids})
    assert answer.status_code == 200, answer.text
    return answer.json()["verdicts"]


@pytest.fixture(scope="module")
def listed(server, submission, text_only):
    """Verdicts of alice and of bob in the group `listed`, the oldest first."""
    headers = {"Authorization": "Bearer alice-0123456789abcdef"}
    with httpx2.Client(base_url=server.url, headers=headers, timeout=400) as http:
        ids = [
            submit(http, submission(text_only(("listed", k)), group="=listed")) for k in range(3)
        ]
        ids += [
            submit(http, submission(text_only("listed by bob"), group="=listed"), headers=AS_BOB)
        ]
        wait(http, ids)
    return ids


def names(http, **query):
    answer = http.get("/v1/verdicts", params={"group": "=listed", **query}).json()
    return [status["verdict_id"] for status in answer["verdicts"]], answer["next"]


def test_several_verdicts_are_waited_for_in_one_request_in_their_order(
    http, server, submission, text_only
):
    with server.frozen_judge():
        ids = [submit(http, submission(text_only(("several", k)))) for k in range(3)]
        at_once = http.post(
            "/v1/verdicts/wait", params={"wait": 0}, json={"verdict_ids": ids}
        ).json()["verdicts"]
        assert {status["state"] for status in at_once} <= {"queued", "running"}
    statuses = wait(http, [ids[2], ids[0], ids[1]])
    assert [status["verdict_id"] for status in statuses] == [ids[2], ids[0], ids[1]]
    assert all(status["score"]["ended_at"] == "source" for status in statuses)
    assert http.post("/v1/verdicts/wait", json={"verdict_ids": ["0" * 32]}).status_code == 404
    assert http.post("/v1/verdicts/wait", json={"verdict_ids": ["../x"]}).status_code == 422


def test_filters_agree_and_pages_follow_each_other(http, listed):
    assert names(http) == (listed[::-1], None)
    first, before = names(http, limit=3)
    assert first == listed[:0:-1]
    assert names(http, limit=3, before=before)[0] == listed[:1]
    assert names(http, client="bob")[0] == listed[3:]
    assert (
        names(http, client="bob", fault="entry_point", problem="fused_silu", state="finished")[0]
        == listed[3:]
    )
    for nothing in (
        {"fault": "compile"},
        {"problem": "row_sum"},
        {"until": 1.0},
        {"client": "carol"},
    ):
        assert names(http, **nothing)[0] == [], nothing
    assert http.get("/v1/verdicts", params={"fault": "no such fault"}).status_code == 422
    [status] = http.get("/v1/verdicts", params={"group": "=listed", "client": "bob"}).json()[
        "verdicts"
    ]
    assert (status["clients"], status["groups"]) == (["bob"], ["=listed"])


def test_csv_has_a_row_for_each_verdict_and_no_formula(http, listed):
    answer = http.get("/v1/verdicts.csv", params={"group": "=listed", "limit": 1})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["verdict_id"] for row in rows] == listed[::-1]
    assert {(row["groups"], row["fault"], row["correct"]) for row in rows} == {
        ("'=listed", "entry_point", "False")
    }


def test_the_texts_of_a_verdict_are_given_back(http, listed, submission, text_only):
    source = http.get(f"/v1/verdicts/{listed[0]}/source").json()
    assert source["candidate"] == text_only(("listed", 0))
    assert "class Model" in source["problem"]
    assert (source["options"]["sizes"], source["clients"], source["groups"]) == (
        1,
        ["alice"],
        ["=listed"],
    )
    assert http.get(f"/v1/verdicts/{'0' * 32}/source").status_code == 404


def test_what_is_forced_is_judged_once_more(http, submission, text_only):
    body = submission(text_only("forced"))
    [before] = wait(http, [submit(http, body)])
    assert http.post("/v1/verdicts", json=body).status_code == 200
    forced = http.post("/v1/verdicts", json={**body, "force": True})
    assert (forced.status_code, forced.json()["known"]) == (202, True)
    [after] = wait(http, [before["verdict_id"]])
    assert [attempt["outcome"] for attempt in after["attempts"]] == ["finished", "finished"]


def test_who_submitted_a_verdict_has_it_judged_again_and_nobody_else(http, submission, text_only):
    verdict_id = submit(http, submission(text_only("again")))
    wait(http, [verdict_id])
    path = f"/v1/verdicts/{verdict_id}/again"
    assert http.post(path, headers=AS_BOB).status_code == 403
    assert http.post(path).status_code == 200
    [status] = wait(http, [verdict_id])
    assert [attempt["outcome"] for attempt in status["attempts"]] == ["finished", "finished"]
    assert http.post(f"/v1/verdicts/{'0' * 32}/again").status_code == 404


def test_a_clients_verdicts_of_larger_priority_come_first(http, server, submission, text_only):
    with server.frozen_judge():
        first = submit(http, submission(text_only("priority: first")))
        usual = [submit(http, submission(text_only(("priority", k)))) for k in range(2)]
        urgent = http.post(
            "/v1/verdicts", json=submission(text_only("priority: urgent"), priority=5)
        ).json()
        assert urgent["position"] == 1
        raised = http.post(
            "/v1/verdicts", json=submission(text_only(("priority", 1)), priority=9)
        ).json()
        assert (raised["known"], raised["position"]) == (True, 1)
    statuses = wait(http, [first, usual[1], urgent["verdict_id"], usual[0]])
    assert sorted(statuses, key=lambda status: status["started"]) == statuses
    assert http.post("/v1/verdicts", json=submission("x", priority=101)).status_code == 422


def test_judges_tell_their_age_and_what_they_are_at(http, server, submission, text_only):
    with server.frozen_judge():
        verdict_id = submit(http, submission(text_only("judges")))
        [judge] = http.get("/v1/judges").json()["judges"]
        assert (judge["name"], judge["state"], judge["capacity"]) == ("cpu:0", "ready", 1)
        [running] = judge["verdicts"]
        assert (running["verdict_id"], running["seconds"] >= 0.0) == (verdict_id, True)
        metrics = http.get("/metrics").text
        assert 'kernelwright_oldest_running_seconds{device="cpu"} 0.0\n' not in metrics
    wait(http, [verdict_id])
    metrics = http.get("/metrics").text
    assert 'kernelwright_oldest_running_seconds{device="cpu"} 0.0\n' in metrics
    assert 'kernelwright_queue_wait_seconds_count{device="cpu"}' in metrics
    assert f'kernelwright_judge_restarts{{judge="cpu:0"}} {float(judge["restarts"])}' in metrics


def test_the_past_of_the_service_counts_what_ended(http, listed):
    history = http.get("/v1/history", params={"seconds": 86_400}).json()
    assert history["ended"] == sum(stretch["ended"] for stretch in history["bins"]) >= len(listed)
    assert 0.0 < history["latency_p50"] <= history["latency_p95"]
    assert history["bins"][-1]["queued"] == 0


def test_an_answer_may_be_old_only_for_a_client_that_says_so(http, submission, text_only):
    def group(**headers):
        path = "/v1/verdicts?group=shared"
        answer = http.get(path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        return [status["verdict_id"] for status in answer.json()["verdicts"]]

    first = submit(http, submission(text_only("shared 1"), group="shared"))
    assert group(cache_control="max-age=3600") == [first]
    second = submit(http, submission(text_only("shared 2"), group="shared"))
    assert group(cache_control="max-age=3600") == [first]
    assert group(cache_control="max-age=3600", authorization=f"Bearer {BOB}") == [second, first]
    assert group() == [second, first]
    assert group(cache_control="max-age=3600") == [second, first]
    wait(http, [first, second])


def test_answers_on_a_kept_connection_do_not_wait_for_acknowledgements(http):
    """With Nagle's algorithm each of them takes 40 ms, which is how long a client delays an acknowledgement."""
    seconds = []
    for _ in range(30):
        began = time.perf_counter()
        http.get("/v1/queue")
        seconds.append(time.perf_counter() - began)
    assert sorted(seconds)[len(seconds) // 4] < 0.035  # the first ones are acknowledged at once

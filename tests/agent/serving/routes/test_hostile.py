"""What a stranger, or a client that means harm, sends: each has its answer in a moment, and the server goes on."""

import contextlib
import gzip
import json
import os
import socket
import threading
import time

import httpx2
import psutil
import pytest

from ..conftest import ALICE

JSON = {"Content-Type": "application/json"}
UNKNOWN = "0" * 32
MOST_MEMORY_MIB = 1024
"""That the server may hold while it answers a body of 16 MiB (each of these once took more than 5,000)."""


@pytest.fixture(autouse=True)
def _goes_on(server):
    yield
    assert httpx2.get(f"{server.url}/v1/health", timeout=400).json()["status"] == "ok"


@pytest.fixture
def largest(server):
    """`largest()`: the most memory that the server held since this test began, in MiB."""
    process, most, over = psutil.Process(server.process.pid), [0.0], threading.Event()

    def watch():
        while not over.wait(0.02):
            most[0] = max(most[0], process.memory_info().rss / 2**20)

    thread = threading.Thread(target=watch)
    thread.start()
    yield lambda: most[0]
    over.set()
    thread.join()


def submission_with(field: bytes) -> bytes:
    return b'{"problem":{"name":"fused_silu"},"candidate":"x",' + field + b"}"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 500_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        submission_with(b'"options":' + b"[" * 50_000 + b"]" * 50_000),
        submission_with(b'"options":{"seed":' + b"9" * 5000 + b"}"),
        b'{"problem":{"name":"fused_silu"},"candidate":"\xff\xfe"}',
    ],
    ids=["open lists", "nested objects", "nested options", "a number of 5,000 digits", "no UTF-8"],
)
def test_what_cannot_be_read_is_a_400_that_says_what_can(http, body):
    answer = http.post("/v1/verdicts", content=body, headers=JSON)
    assert answer.status_code == 400
    assert "send JSON in UTF-8" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"submissions":[{' + b",".join(b'"k%d":1' % k for k in range(1_000_000)) + b"}]}",
        b'{"submissions":[' + b"1," * 7_000_000 + b"1]}",
        b'{"submissions":[' + b'"",' * 4_000_000 + b'""]}',
        b"[" * 15_000_000,
    ],
    ids=["a million keys", "numbers", "strings", "open lists"],
)
def test_a_body_of_much_structure_is_refused_before_it_is_decoded(http, body):
    answer = http.post("/v1/batches", content=body, headers=JSON)
    assert answer.status_code == 422
    assert "more structure" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "field",
    [
        b'"options":{"seconds":NaN}', b'"options":{"compile_seconds":Infinity}', b'"options":{"seed":NaN}',
        b'"options":{"seconds":1e999}', b'"options":{"own_work":"share:nan"}', b'"options":{"own_work":"\\ud800"}',
        b'"options":{"targets":["\\ud800"]}', b'"group":"\\udfff"', b'"device":"\\ud800"', b'"\\ud800":1',
    ],
)  # fmt: skip
def test_numbers_that_are_none_and_halves_of_characters_are_refused(http, field):
    answer = http.post("/v1/verdicts", content=submission_with(field), headers=JSON)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid"


def test_a_compressed_body_is_never_unpacked(http, largest):
    bomb = gzip.compress(b" " * 400_000_000, 1)
    assert len(bomb) < 2**21
    for body, path in (
        (gzip.compress(submission_with(b'"group":null')), "/v1/verdicts"),
        (bomb, "/v1/batches"),
    ):
        answer = http.post(path, content=body, headers={**JSON, "Content-Encoding": "gzip"})
        assert answer.status_code == 400
    assert largest() < MOST_MEMORY_MIB / 2


@pytest.mark.parametrize(
    "path",
    [
        "/v1/verdicts/..%2f..%2fetc%2fpasswd", "/v1/verdicts/%2e%2e/%2e%2e/etc/passwd", f"/v1/verdicts/{UNKNOWN}%00",
        f"/v1/verdicts/{UNKNOWN}%0a", "/v1/verdicts/a'%20OR%201=1--", "/v1/verdicts/" + "%ff" * 16,
        "/v1/problems/..%2f..%2fetc%2fpasswd", "/v1/problems/~root", "/v1/problems/%00", "/v1/problems/%ff%fe",
        "/v1/trajectories/..%2f1",
    ],
)  # fmt: skip
def test_an_id_is_never_a_path(http, path):
    answer = http.get(path)
    assert answer.status_code in (404, 422)
    assert "root:" not in answer.text


@pytest.mark.parametrize(
    "text", ["x=" + "-" * 100_000 + "1", "x=a" + ".a" * 15_000, "x=" + "(" * 5000 + ")" * 5000]
)
def test_a_reference_that_is_too_deep_for_python_is_refused(http, text):
    body = {"problem": {"source": text, "name": "deep"}, "candidate": "x"}
    answer = http.post("/v1/verdicts", json=body)
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/batches", b'{"submissions":[' + b",".join([b"0"] * 8_000_000) + b"]}"),
        ("/v1/batches", b'{"submissions":[' + b",".join([b"{}"] * 5_000_000) + b"]}"),
        ("/v1/batches", b"{" + b",".join(b'"%d":0' % k for k in range(1_400_000)) + b"}"),
        (
            "/v1/verdicts",
            submission_with(b'"options":{"targets":[' + b",".join([b"0"] * 400_000) + b"]}"),
        ),
        (
            "/v1/verdicts",
            submission_with(b'"options":{"allow_import":[' + b",".join([b"0"] * 400_000) + b"]}"),
        ),
    ],
    ids=["numbers", "objects", "fields", "targets", "imports"],
)
def test_a_body_of_millions_of_wrong_things_takes_little_memory(http, largest, path, body):
    answer = http.post(path, content=body, headers=JSON)
    assert answer.status_code == 422
    assert largest() < MOST_MEMORY_MIB


def test_a_body_of_who_has_no_token_is_not_read(server):
    """The answer comes before the body, and the connection is closed."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=400) as connection:
        connection.sendall(
            b"POST /v1/batches HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer wrong-token-0123456\r\nContent-Length: 16000000\r\n\r\n["
        )
        parts = []
        while part := connection.recv(2**16):
            parts.append(part)
    assert b"".join(parts).startswith(b"HTTP/1.1 401 ")


@pytest.mark.slow
def test_one_client_counts_once_whichever_of_its_tokens_it_sends(
    serve, tmp_path, submission, text_only
):
    (tmp_path / "tokens.txt").write_text("carol carol-0123456789abc\ncarol carol-again-456789abc\n")
    limited = serve("--token-file", "tokens.txt", "--client-per-minute", "2")
    codes = []
    for k, token in enumerate(("carol-0123456789abc", "carol-again-456789abc") * 2):
        headers = {"Authorization": f"Bearer {token}"}
        body = submission(text_only(("tokens", k)))
        codes.append(
            httpx2.post(
                f"{limited.url}/v1/verdicts", json=body, headers=headers, timeout=400
            ).status_code
        )
    assert codes[2:] == [429, 429]
    assert all(code in (200, 202) for code in codes[:2])


def test_a_verdict_cancelled_many_times_at_once_is_cancelled_once(
    http, server, submission, text_only
):
    states = []

    def cancel(path):
        headers = {"Authorization": f"Bearer {ALICE}"}
        states.append(
            httpx2.delete(server.url + path, headers=headers, timeout=400).json()["state"]
        )

    with server.frozen_judge():
        http.post("/v1/verdicts", json=submission(text_only("before the cancels")))
        waiting = http.post("/v1/verdicts", json=submission(text_only("cancelled"))).json()
        path = f"/v1/verdicts/{waiting['verdict_id']}"
        threads = [threading.Thread(target=cancel, args=(path,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert states == ["cancelled"] * 16
    assert http.get(path).json()["attempts"] == []


@pytest.mark.slow
def test_event_streams_that_nobody_reads_delay_no_other_client(http, server, submission, text_only):
    host, port = server.url.removeprefix("http://").split(":")
    with contextlib.ExitStack() as streams:
        with server.frozen_judge():
            verdict_id = http.post("/v1/verdicts", json=submission(text_only("streams"))).json()[
                "verdict_id"
            ]
            path = f"/v1/verdicts/{verdict_id}/events"
            head = f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ALICE}\r\n\r\n"
            for _ in range(200):
                stream = streams.enter_context(
                    socket.create_connection((host, int(port)), timeout=400)
                )
                stream.sendall(head.encode())
            deadline = time.monotonic() + 60
            while len(os.listdir(f"/proc/{server.process.pid}/fd")) <= 200:
                assert time.monotonic() < deadline
        deadline = time.monotonic() + 400
        while http.get(f"/v1/verdicts/{verdict_id}", params={"wait": 5}).json()["state"] in (
            "queued",
            "running",
        ):
            assert time.monotonic() < deadline
        assert json.loads(http.get("/v1/health").content)["status"] == "ok"

"""Connections that misbehave: each has its documented answer, and the server goes on."""

import contextlib
import logging
import socket
import threading
import time
from pathlib import Path

import httpx2
import pytest

from kernelwright.agent.judging.local_pool import LocalPool

uvicorn = pytest.importorskip("uvicorn", reason="pip install kernelwright[serve]")
SECONDS = 2.0
"""Every deadline of the server in these tests: what a test sends at once has to arrive within it."""
PATIENCE_SECONDS = 300.0
MOST = 8
"""Connections of the server in these tests."""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Of a server of this process whose deadlines are short; it has a real judge, which is never asked."""
    from kernelwright.agent.serving import server
    from kernelwright.agent.serving.queueing.quotas import QuotaLimits

    plan = server.ServerOptions(
        port=0, store=tmp_path_factory.mktemp("short") / "service.db", body_seconds=SECONDS, header_seconds=SECONDS,
        reader_seconds=SECONDS, most_connections=MOST, limits=QuotaLimits(client_streams=2),
    )  # fmt: skip
    listening = server.listen(plan)
    context = server._context(
        plan, server.VerdictDatabase(Path(plan.store)), LocalPool(["cpu"], 1), server.Tokens({})
    )
    running = server.JudgeServer(server._config(plan, context), context)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    yield listening.getsockname()
    running.should_exit = True
    thread.join(500)
    assert not thread.is_alive()


@pytest.fixture
def connection(address):
    deadline = time.monotonic() + 400
    while True:
        try:
            with socket.create_connection(address, timeout=PATIENCE_SECONDS) as found:
                yield found
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert (
        httpx2.get(
            f"http://{address[0]}:{address[1]}/v1/health", timeout=PATIENCE_SECONDS
        ).status_code
        == 200
    ), "the server goes on"


def everything(connection):
    """What comes until the other side closes, or breaks off."""
    parts = []
    try:
        while part := connection.recv(2**16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def head(length):
    named = "Host: localhost\r\nContent-Type: application/json"
    return f"POST /v1/verdicts HTTP/1.1\r\n{named}\r\nContent-Length: {length}\r\n\r\n"


def test_a_body_that_does_not_arrive_is_answered_with_408(connection):
    connection.sendall(head(1000).encode() + b'{"problem"')
    answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"timeout"' in answer


def test_a_body_that_trickles_in_has_no_more_time_than_another(connection):
    connection.sendall(head(1000).encode())
    answered = threading.Event()

    def trickle():
        """Without end, as far as the server knows: a thousandth of the body every tenth of a second."""
        with contextlib.suppress(OSError):
            while not answered.wait(0.1):
                connection.sendall(b" ")

    trickling = threading.Thread(target=trickle)
    trickling.start()
    try:
        assert everything(connection).startswith(b"HTTP/1.1 408 ")
    finally:
        answered.set()
        trickling.join()


def test_a_header_that_does_not_arrive_closes_the_connection(connection):
    connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost:")
    assert everything(connection) == b""


def test_the_second_header_of_a_connection_has_no_more_time_than_the_first(connection):
    connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while b"uptime_seconds" not in answer:
        answer += connection.recv(2**16)
    connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost:")
    connection.settimeout(20 * SECONDS)  # and not the minute that an idle connection is kept
    assert everything(connection) == b""


def test_a_server_without_tokens_answers_no_page_of_another_host(connection):
    connection.sendall(b"GET /v1/queue HTTP/1.1\r\nHost: somewhere.example:8700\r\n\r\n")
    answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"127.0.0.1 and localhost only" in answer


def test_a_client_that_closes_its_sending_side_is_answered_all_the_same(connection):
    connection.sendall(b"GET /v1/queue HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connection.shutdown(socket.SHUT_WR)
    assert everything(connection).startswith(b"HTTP/1.1 200 OK")


def test_a_client_that_goes_away_in_the_middle_of_a_body_harms_nobody_and_fills_no_log(
    connection, caplog
):
    server_log = logging.getLogger("uvicorn.error")
    server_log.addHandler(caplog.handler)
    try:
        connection.sendall(head(1000).encode() + b"{")
        connection.shutdown(socket.SHUT_WR)
        assert everything(connection) in (b"",)
    finally:
        server_log.removeHandler(caplog.handler)
    assert not caplog.records


@pytest.mark.slow
def test_a_reader_that_takes_nothing_is_left(connection):
    """Answers are asked for, many more than the buffers between the two hold, and not read."""
    # Not smaller: a window of less than a segment opens again only when the kernel probes it, after up to two minutes.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**18)
    connection.settimeout(3 * SECONDS)
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    one = len(
        httpx2.get(
            f"http://{connection.getpeername()[0]}:{connection.getpeername()[1]}/openapi.json",
            timeout=PATIENCE_SECONDS,
        ).content
    )
    times = 40_000_000 // one
    with contextlib.suppress(TimeoutError, ConnectionResetError, BrokenPipeError):
        connection.sendall(asked * times)
    time.sleep(3 * SECONDS)
    connection.settimeout(PATIENCE_SECONDS)
    connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22
    )  # what was on its way arrives at once
    assert len(everything(connection)) < one * times / 2


def test_a_body_that_is_too_large_is_answered_before_it_has_arrived(connection):
    connection.sendall(head(2**21).encode())
    answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"too_large"' in answer


def test_what_is_no_http_is_answered_with_400(connection):
    connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
    assert everything(connection).startswith(b"HTTP/1.1 400 ")


def asked_once(address):
    """A connection that has had an answer and is kept."""
    found = socket.create_connection(address, timeout=PATIENCE_SECONDS)
    found.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while b"uptime_seconds" not in answer:
        answer += found.recv(2**16)
    return found


def test_one_connection_too_many_takes_the_place_of_the_one_that_has_been_idle_for_longest(
    address, connection
):
    connection.sendall(head(1000).encode())  # the oldest, but its request is under way
    with contextlib.ExitStack() as open_ones:
        kept = [open_ones.enter_context(asked_once(address)) for _ in range(MOST)]
        assert everything(kept[0]) == b""
        for one in kept[1:]:
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
    assert everything(connection).startswith(b"HTTP/1.1 408 "), "it was not closed for the others"


def test_one_stream_of_events_too_many_is_refused_until_another_is_closed(
    address, connection, hangs
):
    with httpx2.Client(base_url=f"http://127.0.0.1:{address[1]}", timeout=PATIENCE_SECONDS) as http:
        body = {
            "problem": {"name": "fused_silu"},
            "candidate": hangs("streams"),
            "options": {"compile_seconds": 600},
        }
        verdict = http.post("/v1/verdicts", json=body).json()["verdict_id"]
        place = f"/v1/verdicts/{verdict}/events"
        with http.stream("GET", place) as first:
            assert first.status_code == 200
            with http.stream("GET", place) as second:
                assert second.status_code == 200
                refused = http.get(place)
                assert (refused.status_code, refused.json()["error"]["code"]) == (429, "quota")
                assert int(refused.headers["retry-after"]) > 0
            ends = time.monotonic() + PATIENCE_SECONDS
            while True:
                with http.stream("GET", place) as third:
                    if third.status_code == 200:
                        break
                assert time.monotonic() < ends
                time.sleep(0.1)
        http.delete(f"/v1/verdicts/{verdict}")

"""Traces as an OpenTelemetry collector gets them: a real HTTP server, and the record of a real service."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.agent.serving.record import VerdictDatabase, VerdictTexts, failed_columns
from kernelwright.agent.serving.statistics import trace_export
from kernelwright.agent.serving.statistics.trace_export import TraceExport
from kernelwright.agent.serving.wire import Code, Outcome, State

VERDICT_ID = "0123456789abcdef" * 2


@pytest.fixture
def collector():
    """The bodies that a collector was sent, and its address."""
    bodies = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield bodies, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def record(tmp_path):
    """A record with one verdict that was lost once, then failed."""
    from kernelwright.agent.serving.record import RememberedVerdict

    database = VerdictDatabase(tmp_path / "service.db")
    kept = RememberedVerdict(
        id=VERDICT_ID, sequence=1, state=State.QUEUED, problem="fused_silu", problem_hash="p", candidate_hash="c",
        device=DeviceKind.CPU, submitted=time.time() - 5.0,
    )  # fmt: skip
    database.queue(kept, VerdictTexts(problem="{}", candidate="x", options="{}"), "alice", None)
    database.begin(VERDICT_ID, "cpu:0", time.time() - 4.0)
    database.end_attempt(VERDICT_ID, Outcome.LOST, "it died", {"state": "queued"})
    database.begin(VERDICT_ID, "cpu:1", time.time() - 2.0)
    database.end_attempt(VERDICT_ID, Outcome.FAILED, "no", failed_columns(Code.PROBLEM, "no"))
    yield database
    database.close()


def test_a_verdict_is_one_trace_with_a_span_for_the_queue_and_for_each_attempt(
    record, collector, monkeypatch
):
    monkeypatch.setattr(trace_export, "BATCH_SECONDS", 0.05)
    bodies, address = collector
    export = TraceExport(record, address + "/")
    export.start()
    export.add(VERDICT_ID)
    export.add("f" * 32)  # one that was deleted meanwhile
    export.close()
    [(path, kind, body)] = bodies
    assert (path, kind) == ("/v1/traces", "application/json")
    spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [span["name"] for span in spans] == ["verdict", "queue", "attempt 1", "attempt 2"]
    root, *below = spans
    assert {span["traceId"] for span in spans} == {root["traceId"]}
    assert {span["parentSpanId"] for span in below} == {root["spanId"]}
    assert "parentSpanId" not in root
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in spans)
    facts = {fact["key"]: fact["value"] for fact in root["attributes"]}
    assert facts["kernelwright.error"] == {"stringValue": "problem"}
    assert [span["status"]["code"] for span in (root, *below[1:])] == [2, 2, 2]
    assert int(below[0]["endTimeUnixNano"]) - int(below[0]["startTimeUnixNano"]) == pytest.approx(
        1e9, rel=0.1
    )


def test_a_collector_that_is_away_delays_nothing(record, monkeypatch):
    monkeypatch.setattr(trace_export, "BATCH_SECONDS", 0.05)
    export = TraceExport(record, "http://127.0.0.1:9")
    export.start()
    for _ in range(trace_export.MAX_WAITING + 5):
        export.add(VERDICT_ID)
    export.close()
    assert not export._thread.is_alive()

"""Sends each ended verdict to an OpenTelemetry collector, as a trace (OTLP over HTTP, in JSON).

Specification: https://opentelemetry.io/docs/specs/otlp/#otlphttp. A trace is a verdict: a span from
its submission to its end, with child spans for the queue and for each attempt.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import secrets
import threading
import urllib.error
import urllib.request
from typing import Any

from kernelwright.agent.serving.record import RememberedVerdict, VerdictDatabase
from kernelwright.agent.serving.wire import Attempt, Outcome, State

log = logging.getLogger(__name__)
MAX_WAITING = 10_000
"""Maximum number of unsent verdicts; further verdicts are dropped, so an absent collector costs no
memory.
"""
BATCH = 200
"""Maximum number of verdicts in a request."""
BATCH_SECONDS = 2.0
"""Seconds of collecting verdicts for a request."""
REQUEST_SECONDS = 10.0
"""Time limit of a request to the collector, in seconds."""
INTERNAL_SPAN, STATUS_OK, STATUS_ERROR = 1, 1, 2
"""Numbers of the specification: a span's kind, and its status."""


class TraceExport:
    """Thread that reads verdicts from the record and sends them. Never delays a verdict; failed
    sends are dropped.
    """

    def __init__(self, record: VerdictDatabase, endpoint: str) -> None:
        """endpoint: the base address of a collector, such as http://127.0.0.1:4318."""
        self._record, self._url = record, endpoint.rstrip("/") + "/v1/traces"
        self._waiting: queue.Queue[str] = queue.Queue(MAX_WAITING)
        self._closed = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="trace export", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def add(self, verdict_id: str) -> None:
        """Adds an ended verdict to the unsent ones."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(verdict_id)

    def close(self) -> None:
        """Sends the unsent verdicts once, and ends the thread."""
        self._closed.set()
        self._thread.join(REQUEST_SECONDS + BATCH_SECONDS)

    def _run(self) -> None:
        while True:
            is_last = self._closed.wait(BATCH_SECONDS)
            while verdict_ids := self._batch():
                self._send(verdict_ids)
            if is_last:
                return

    def _batch(self) -> list[str]:
        verdict_ids: list[str] = []
        while len(verdict_ids) < BATCH and not self._waiting.empty():
            verdict_ids.append(self._waiting.get_nowait())
        return verdict_ids

    def _send(self, verdict_ids: list[str]) -> None:
        attempts = self._record.attempts(verdict_ids)
        spans: list[dict[str, Any]] = []
        for verdict_id in verdict_ids:
            verdict = self._record.find(verdict_id)
            if verdict is not None and verdict.ended is not None:
                spans += spans_of(verdict, attempts[verdict_id])
        body = json.dumps(resource_spans(spans)).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        try:
            urllib.request.urlopen(request, timeout=REQUEST_SECONDS).close()
            self._is_failing = False
        except (OSError, urllib.error.URLError) as error:
            if not self._is_failing:  # once, until it answers again
                log.warning("traces are dropped, %s does not take them: %s", self._url, error)
            self._is_failing = True
            # Drops the remaining verdicts, too: reading them from the record is not free.
            while self._batch():
                pass


def resource_spans(spans: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the body of a request."""
    resource = {"attributes": _attributes({"service.name": "kernelwright-judge"})}
    return {
        "resourceSpans": [
            {
                "resource": resource,
                "scopeSpans": [{"scope": {"name": "kernelwright"}, "spans": spans}],
            }
        ]
    }


def spans_of(verdict: RememberedVerdict, attempts: tuple[Attempt, ...]) -> list[dict[str, Any]]:
    """Returns the spans of an ended verdict, the root span first."""
    assert verdict.ended is not None
    trace_id, root_id = secrets.token_hex(16), secrets.token_hex(8)
    score = verdict.score
    facts = {
        "kernelwright.verdict_id": verdict.id, "kernelwright.problem": verdict.problem,
        "kernelwright.device": verdict.device.value, "kernelwright.state": verdict.state.value,
        "kernelwright.ended_at": score.ended_at.value if score else None,
        "kernelwright.correct": score.correct if score else None,
        "kernelwright.fault": score.fault.value if score and score.fault else None,
        "kernelwright.speedup": score.speedup if score else None,
        "kernelwright.error": verdict.error.code.value if verdict.error else None,
    }  # fmt: skip
    # One that is judged again was submitted long before the attempts that are reported now.
    begun = min((attempt.started for attempt in attempts), default=verdict.ended)
    submitted = min(verdict.submitted, begun)
    root = _span("verdict", (trace_id, root_id, ""), (submitted, verdict.ended), facts)
    root["status"] = {"code": STATUS_ERROR if verdict.state is State.FAILED else STATUS_OK}
    spans = [
        root,
        _span("queue", (trace_id, secrets.token_hex(8), root_id), (submitted, begun), {}),
    ]
    for attempt in attempts:
        times = (attempt.started, attempt.ended or verdict.ended)
        facts = {"kernelwright.judge": attempt.judge, "kernelwright.outcome": attempt.outcome.value}
        span = _span(
            f"attempt {attempt.number}", (trace_id, secrets.token_hex(8), root_id), times, facts
        )
        span["status"] = {
            "code": STATUS_OK if attempt.outcome is Outcome.FINISHED else STATUS_ERROR
        }
        spans.append(span)
    return spans


def _span(
    name: str, ids: tuple[str, str, str], times: tuple[float, float], facts: dict[str, Any]
) -> dict[str, Any]:
    """Returns a span. ids: of the trace, the span, and the parent span. times: seconds since 1970."""
    trace_id, span_id, parent_id = ids
    span: dict[str, Any] = {
        "traceId": trace_id, "spanId": span_id, "name": name, "kind": INTERNAL_SPAN,
        "startTimeUnixNano": str(int(times[0] * 1e9)), "endTimeUnixNano": str(int(times[1] * 1e9)),
        "attributes": _attributes(facts),
    }  # fmt: skip
    if parent_id:
        span["parentSpanId"] = parent_id
    return span


def _attributes(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": _value(value)} for key, value in facts.items() if value is not None
    ]


def _value(value: object) -> dict[str, Any]:
    """Writes a value as the specification's JSON does: with its type as the key."""
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}

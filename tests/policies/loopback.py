"""A server on loopback that speaks /v1/chat/completions, and misbehaves as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["Handler"], None]


def reply(text: str = "hello", **choice: Any) -> dict[str, Any]:
    return {
        "id": "1",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text},
                **choice,
            }
        ],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
        "system_fingerprint": "fp-1",
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Loopback

    def log_message(self, *arguments: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.server.listing(self)

    def do_POST(self) -> None:
        self.asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(self.asked)
        self.server.keys.append(self.headers.get("authorization", ""))
        self.server.next_behaviour()(self)

    def say(
        self, content: Any, status: int = 200, kind: str = "application/json", **headers: str
    ) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


class Loopback(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behaviours: list[Behaviour], listing: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.listing = listing
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self._behaviours = behaviours
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def next_behaviour(self) -> Behaviour:
        """In order; the last one stays."""
        with self._lock:
            return self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]

    def handle_error(self, *arguments: Any) -> None:
        """A client that hangs up is part of the tests."""


def no_listing(handler: Handler) -> None:
    handler.say({"error": {"message": "no such page"}}, status=404)


@contextmanager
def loopback(*behaviours: Behaviour, listing: Behaviour = no_listing) -> Iterator[Loopback]:
    server = Loopback(list(behaviours), listing)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    ).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()

"""What the OpenAI policy makes of drawn servers' answers: `python -m bench.drawn_answers [--count 4000] [--half told]`.

An answer is drawn by dimensions (status, content type, form of the document, message, compression, framing, wait), some
or all of them independently of each other, and sent as raw bytes on loopback. A hash of the combination decides whether
it belongs to the half that was developed against (`told`) or to the half that is only reported (`kept`). Held for each:

* the policy gives a completion or raises PolicyError, within a second beyond the time limit of the request;
* an answer that arrives whole with status 200 gives the text that the server sent;
* an error's message is one line without the key, and a wait is a finite number of seconds, that of the header.
"""

from __future__ import annotations

import argparse
import datetime
import email.utils
import gzip
import hashlib
import json
import math
import os
import random
import socket
import struct
import threading
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "drawn_answers.md"
TIMEOUT_SECONDS = 1.0
TEXT = "```python\nimport triton  # é 漢 \\ud83d\n```"
KEY = "sk-secret-0123456789"
WAIT_SECONDS = 7.0

STATUSES = (
    200,
    200,
    200,
    200,
    204,
    206,
    302,
    400,
    401,
    403,
    404,
    408,
    409,
    413,
    418,
    422,
    429,
    429,
    500,
    503,
    529,
    999,
)
CONTENT_TYPES = (
    None, "application/json", "application/json; charset=utf-8", "text/event-stream", "text/html",
    "text/plain;charset=x", ";;;", "application/json, text/html",
)  # fmt: skip
MESSAGES: dict[str, Any] = {
    "text": {"role": "assistant", "content": TEXT},
    "parts": {"role": "assistant", "content": [{"type": "text", "text": TEXT}]},
    "null content": {"role": "assistant", "content": None},
    "reasoning alone": {"role": "assistant", "content": None, "reasoning_content": "thinking"},
    "reasoning and text": {"role": "assistant", "content": TEXT, "reasoning_content": "thinking"},
    "reasoning of a wrong type": {"role": "assistant", "content": TEXT, "reasoning_content": {"a": [1]}},
    "tool calls": {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": ""}}]},
    "tool calls of a wrong type": {"role": "assistant", "content": None, "tool_calls": "f()"},
    "refusal": {"role": "assistant", "content": None, "refusal": "no"},
    "number": {"role": "assistant", "content": 3},
    "list of numbers": {"role": "assistant", "content": [1, None, {"text": 5}, ["x"]]},
    "a string": TEXT,
    "null": None,
}  # fmt: skip
WITH_TEXT = {"text", "parts", "reasoning and text", "a string"}
CHOICES = (
    "whole",
    "whole",
    "whole",
    "empty",
    "null",
    "missing",
    "no objects",
    "object",
    "error",
    "finish of a number",
)
USAGES: tuple[Any, ...] = (
    {"prompt_tokens": 3, "completion_tokens": 4}, None, "free", {"prompt_tokens": "many"}, {"prompt_tokens": -1},
    {"prompt_tokens": 10**30, "completion_tokens": 1.5}, [], {"prompt_tokens": {"a": 1}, "prompt_tokens_details": 3},
)  # fmt: skip
DOCUMENTS = (
    "json", "json", "json", "json in a list", "json with a mark of bytes", "utf-16", "lines", "events", "events",
    "events with comments", "events with carriage returns", "events without an end", "events with an error",
    "events of text in parts", "cut json", "html", "empty", "text", "deep json", "number", "binary", "error object",
)  # fmt: skip
ENCODINGS = (
    "identity",
    "identity",
    "identity",
    "gzip",
    "deflate",
    "gzip, cut",
    "gzip, not said",
    "br, not so",
    "x",
)
FRAMINGS = (
    "length", "length", "length", "chunks", "chunks", "chunks, cut", "chunks, no end", "length, too long",
    "length, too short", "until the end", "reset", "reset at once", "closed at once", "bad chunk", "no status line",
    "interim", "odd headers", "slowly", "never",
)  # fmt: skip
WAITS = (
    "none",
    "seconds",
    "date",
    "past date",
    "milliseconds",
    "fraction",
    "negative",
    "words",
    "huge",
    "infinite",
    "twice",
)


class DrawnAnswer(NamedTuple):
    """One value of each dimension."""

    status: int
    content_type: str | None
    document: str
    message: str
    choices: str
    usage: int
    encoding: str
    framing: str
    wait: str

    @property
    def half(self) -> str:
        """The half that this combination belongs to."""
        digest = hashlib.sha256(repr(tuple(self)).encode()).digest()
        return "told" if digest[0] % 2 else "kept"

    @property
    def is_whole(self) -> bool:
        """Whether a client that reads it correctly has the model's text."""
        return (
            self.status == 200 and self.message in WITH_TEXT and self.choices == "whole"
            and self.document in WHOLE_DOCUMENTS
            and not (self.message == "a string" and self.document != "json")
            and self.encoding in ("identity", "gzip", "deflate")
            and self.framing in ("length", "chunks", "until the end", "interim", "odd headers")
        )  # fmt: skip


WHOLE_DOCUMENTS = {
    "json", "json in a list", "json with a mark of bytes", "utf-16", "lines", "events", "events with comments",
    "events with carriage returns", "events of text in parts",
}  # fmt: skip


ORDINARY = DrawnAnswer(
    200, "application/json", "json", "text", "whole", 0, "identity", "length", "none"
)


def draw(generator: random.Random) -> DrawnAnswer:
    """Draws one to four dimensions, and of every fourth answer all of them; the others are ordinary."""
    choose = generator.choice
    drawn = DrawnAnswer(
        choose(STATUSES), choose(CONTENT_TYPES), choose(DOCUMENTS), choose(list(MESSAGES)), choose(CHOICES),
        generator.randrange(len(USAGES)), choose(ENCODINGS), choose(FRAMINGS), choose(WAITS),
    )  # fmt: skip
    count = generator.choice((1, 2, 3, 4, 3, len(drawn)))
    names = generator.sample(DrawnAnswer._fields, count)
    return ORDINARY._replace(**{name: getattr(drawn, name) for name in names})


# ------------------------------------------------------------------ the bytes of an answer
def chat(answer: DrawnAnswer, message: Any, part: str = "message") -> dict[str, Any]:
    """Returns the document of a chat completion, or of one event of its stream (part: delta)."""
    choice = {"index": 0, "finish_reason": "stop", part: message}
    choices: dict[str, Any] = {
        "whole": [choice], "empty": [], "null": None, "no objects": ["x", 3], "object": choice,
        "error": [{"error": {"message": "failed", "code": 502}}],
        "finish of a number": [{**choice, "finish_reason": 7}],
    }  # fmt: skip
    content: dict[str, Any] = {"id": "1", "usage": USAGES[answer.usage]}
    return (
        content if answer.choices == "missing" else content | {"choices": choices[answer.choices]}
    )


def document(answer: DrawnAnswer) -> bytes:
    """Returns the body before its compression."""
    message = MESSAGES[answer.message]
    whole = json.dumps(chat(answer, message), ensure_ascii=False)
    event = json.dumps(chat(answer, message, "delta"))
    kinds: dict[str, Callable[[], bytes]] = {
        "json": whole.encode, "json in a list": lambda: f"[{whole}]".encode(),
        "json with a mark of bytes": lambda: whole.encode("utf-8-sig"), "utf-16": lambda: whole.encode("utf-16"),
        "lines": lambda: f"{event}\n".encode(), "events": lambda: f"data: {event}\n\ndata: [DONE]\n\n".encode(),
        "events with comments": lambda: f": keep-alive\n\nevent: x\nid: 1\ndata: {event}\n\n: ping\n\n".encode(),
        "events with carriage returns": lambda: f"retry: 10\r\ndata: {event}\r\n\r\ndata: [DONE]\r\n\r\n".encode(),
        "events without an end": lambda: f'data: {event}\n\ndata: {{"choices": [{{"del'.encode(),
        "events with an error": lambda: f'data: {event}\n\ndata: {{"error": {{"message": "late"}}}}\n\n'.encode(),
        "events of text in parts": lambda: _events_in_parts(answer),
        "cut json": lambda: whole[: len(whole) // 2].encode(),
        "html": lambda: b"<html><script>x</script><h1>Bad gateway</h1>" + b"<p>x" * 1000, "empty": lambda: b"",
        "text": lambda: f"no such thing for {KEY}".encode(), "deep json": lambda: b"[" * 100_000,
        "number": lambda: b"1e999", "binary": lambda: bytes(range(256)) * 8,
        "error object": lambda: json.dumps({"error": {"message": f"{KEY}\nis bad", "code": "x", "param": 3}}).encode(),
    }  # fmt: skip
    return kinds[answer.document]()


def _events_in_parts(answer: DrawnAnswer) -> bytes:
    message = MESSAGES[answer.message]
    if not isinstance(message, dict) or not isinstance(message.get("content"), str):
        return f"data: {json.dumps(chat(answer, message, 'delta'))}\n\n".encode()
    parts = [message | {"content": part} for part in (TEXT[:9], "", TEXT[9:])]
    parts[1:] = [{"content": part["content"]} for part in parts[1:]]
    return b"".join(
        f"data:{json.dumps(chat(answer, part, 'delta'))}\n\n".encode() for part in parts
    )


def packed(answer: DrawnAnswer, body: bytes) -> tuple[bytes, str | None]:
    """Returns the compressed body, and the header Content-Encoding."""
    match answer.encoding:
        case "gzip":
            return gzip.compress(body), "gzip"
        case "deflate":
            return zlib.compress(body), "deflate"
        case "gzip, cut":
            return gzip.compress(body)[:-12], "gzip"
        case "gzip, not said":
            return gzip.compress(body), None
        case "br, not so":
            return body, "br"
        case "x":
            return body, "x-unknown"
    return body, None


def wait_headers(wait: str) -> list[str]:
    """Returns the headers that name a wait."""
    now = time.time()
    return {
        "none": [], "seconds": [f"Retry-After: {WAIT_SECONDS:.0f}"],
        "date": [f"Retry-After: {email.utils.formatdate(now + WAIT_SECONDS, usegmt=True)}"],
        "past date": ["Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"],
        "milliseconds": [f"retry-after-ms: {1000 * WAIT_SECONDS:.0f}"], "fraction": ["Retry-After: 0.5"],
        "negative": ["Retry-After: -5"], "words": ["Retry-After: soon"], "huge": ["Retry-After: 1" + "0" * 400],
        "infinite": ["Retry-After: Infinity"], "twice": ["Retry-After: 7", "Retry-After: 9"],
    }[wait]  # fmt: skip


def head(answer: DrawnAnswer, encoding: str | None, framing: str) -> bytes:
    """Returns the status line and the headers."""
    lines = [f"HTTP/1.1 {answer.status} Status"]
    lines += [] if answer.content_type is None else [f"Content-Type: {answer.content_type}"]
    lines += [] if encoding is None else [f"Content-Encoding: {encoding}"]
    lines += ["Location: /v1/elsewhere"] if answer.status == 302 else []
    lines += (
        ["X-Empty:", "x-ratelimit-remaining-requests: none", "X-Odd: ü"]
        if answer.framing == "odd headers"
        else []
    )
    return "\r\n".join([*lines, *wait_headers(answer.wait), framing, "", ""]).encode("latin-1")


def send(answer: DrawnAnswer, connection: socket.socket) -> None:
    """Sends the answer on a connection whose request has been read."""
    body, encoding = packed(answer, document(answer))
    middle = len(body) // 2
    chunked = head(answer, encoding, "Transfer-Encoding: chunked")
    length = head(answer, encoding, f"Content-Length: {len(body)}")
    chunks = [
        b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:middle], body[middle:]) if part
    ]
    match answer.framing:
        case "chunks":
            connection.sendall(chunked + b"".join(chunks) + b"0\r\n\r\n")
        case "chunks, cut":
            connection.sendall(chunked + b"".join(chunks)[: middle or 1])
        case "chunks, no end":
            connection.sendall(chunked + b"".join(chunks))
        case "length, too long":
            connection.sendall(head(answer, encoding, f"Content-Length: {len(body) + 9}") + body)
        case "length, too short":
            connection.sendall(head(answer, encoding, f"Content-Length: {middle}") + body)
        case "until the end":
            connection.sendall(head(answer, encoding, "Connection: close") + body)
        case "reset" | "reset at once":
            connection.sendall(length + body[:middle] if answer.framing == "reset" else b"")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        case "closed at once":
            pass
        case "bad chunk":
            connection.sendall(chunked + b"zz\r\n" + body)
        case "no status line":
            connection.sendall(body or b"\r\n")
        case "interim":
            connection.sendall(
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
                + length
                + body
            )
        case "slowly":
            for byte in range(0, len(length), 40):
                connection.sendall(length[byte : byte + 40])
                time.sleep(0.3)
        case "never":
            time.sleep(TIMEOUT_SECONDS + 0.5)
        case _:
            connection.sendall(length + body)


class AnswerServer:
    """Sends `answer` to every POST, and no list of models."""

    def __init__(self) -> None:
        self.answer: DrawnAnswer | None = None
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            threading.Thread(
                target=self._converse, args=(connection, self.answer), daemon=True
            ).start()

    def _converse(self, connection: socket.socket, answer: DrawnAnswer | None) -> None:
        with connection:
            try:
                if _read_request(connection).startswith(b"GET") or answer is None:
                    connection.sendall(
                        b"HTTP/1.1 404 None\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    )
                    return
                send(answer, connection)
            except OSError:  # the client has gone
                pass


def _read_request(connection: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        if not (received := connection.recv(65536)):
            return request
        request += received
    before, _, body = request.partition(b"\r\n\r\n")
    lengths = [line for line in before.lower().split(b"\r\n") if line.startswith(b"content-length")]
    missing = int(lengths[0].split(b":")[1]) - len(body) if lengths else 0
    while missing > 0 and (received := connection.recv(65536)):
        missing -= len(received)
    return request


# ------------------------------------------------------------------ what is held
def fault_of(answer: DrawnAnswer, server: AnswerServer) -> tuple[str, str]:
    """Returns the fault of the policy at this answer, empty where there is none, and its outcome in a word."""
    from kernelwright.policies.base import Message, PolicyError, Request, Role, Sampling
    from kernelwright.policies.openai.openai_policy import OpenAIPolicy

    server.answer = answer
    policy = OpenAIPolicy("m", server.url, key=KEY, timeout=TIMEOUT_SECONDS)
    request = Request(
        messages=(Message(role=Role.USER, content="x"),), sampling=Sampling(max_tokens=9)
    )
    began = time.monotonic()
    try:
        [completion] = policy.sample([request])
    except PolicyError as error:
        fault, outcome = _fault_of_error(answer, error), str(error.trouble)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        fault, outcome = (
            f"{type(error).__name__}: {error} ({where.name}:{where.lineno})",
            "traceback",
        )
    else:
        outcome = "completion"
        is_wrong = answer.is_whole and TEXT not in completion.text
        fault = f"the text is {completion.text!r}" if is_wrong else ""
    finally:
        policy.close()
    seconds = time.monotonic() - began
    return (fault or (f"took {seconds:.1f} s" if seconds > MAX_SECONDS else "")), outcome


MAX_SECONDS = 8 * (TIMEOUT_SECONDS + 1.0)
"""A refused request is repeated with fewer fields, four times at most, and each request has its own time limit."""


def _fault_of_error(answer: DrawnAnswer, error: Any) -> str:
    message, wait = str(error), getattr(error, "retry_after", None)
    if answer.is_whole:
        return f"a whole answer is refused: {message}"
    if KEY in message or "\n" in message or len(message) > 1000:
        return f"the message is {message!r}"
    if wait is not None and not (math.isfinite(wait) and wait >= 0.0):
        return f"the wait is {wait}"
    is_busy = answer.status in (429, 503, 529) and answer.framing in (
        "length",
        "chunks",
        "until the end",
        "interim",
    )
    is_named = answer.wait in ("seconds", "date", "milliseconds") and answer.encoding == "identity"
    if is_busy and is_named and (wait is None or abs(wait - WAIT_SECONDS) > 1.5):
        return f"the wait is {wait}, not {WAIT_SECONDS}"
    return ""


def main() -> int:
    """Draws, asks, and prints the faults; with --out writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--count", type=int, default=4000, help="combinations that are drawn, of both halves"
    )
    parser.add_argument("--half", choices=("told", "kept"), default="told")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    answers = dict.fromkeys(draw(generator) for _ in range(options.count))
    chosen = [answer for answer in answers if answer.half == options.half]
    server, outcomes, faults = AnswerServer(), Counter[str](), []
    began = time.monotonic()
    for answer in chosen:
        fault, outcome = fault_of(answer, server)
        outcomes[outcome] += 1
        if fault:
            faults.append((answer, fault))
            if options.half == "told":
                print(f"{fault}\n    {answer}", flush=True)
    whole = sum(answer.is_whole for answer in chosen)
    words = f"--count {options.count} --half {options.half} --seed {options.seed}"
    lines = [
        "# Drawn answers of a model's server, and what the OpenAI policy makes of them", "",
        f"`python -m bench.drawn_answers {words}`, {datetime.date.today():%Y-%m-%d}, {os.cpu_count()} cores: "
        f"{len(chosen)} answers, {whole} of them whole, in {time.monotonic() - began:.0f} s.", "",
        f"Faults: {len(faults)} (tracebacks: {outcomes['traceback']}).", "", "| outcome | answers |", "|---|---|",
        *(f"| {outcome} | {count} |" for outcome, count in outcomes.most_common()), "",
    ]  # fmt: skip
    print(text := "\n".join(lines))
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Answers of a model's server, and what `agent solve` makes of each: the table of the tests and of the benchmark."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.policies.loopback import Behaviour, Handler, no_listing, reply
from tests.tools.markdown.replies import KERNEL, MODEL, WHOLE, fenced

PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return []
"""
CODE = f"Here it is:\n\n{fenced(WHOLE)}"
SOLVED, NO_KERNEL, CHANGE_SOMETHING, SERVER_TROUBLE = 0, 1, 2, 3
"""Exit statuses."""


class Case(NamedTuple):
    """A server's answers, and their outcome."""

    answers: list[Behaviour]
    """In order; the last one is repeated."""
    exit: int = SOLVED
    requests: int = 1
    """Requests that reach the server."""
    paid: int = 1
    """Answers of status 200 among them."""
    rows: int = 1
    """Turns with an answer in the database."""
    message: str = "correct"
    """A part of the one line that the user sees."""
    listing: Behaviour = no_listing


def says(
    content: Any, status: int = 200, kind: str = "application/json", **headers: str
) -> Behaviour:
    return lambda handler: handler.say(content, status=status, kind=kind, **headers)


def message(finish: str = "stop", **fields: Any) -> dict[str, Any]:
    """A reply whose message has other fields."""
    answer = reply(CODE, finish_reason=finish)
    answer["choices"][0]["message"] = {"role": "assistant", **fields}
    return answer


def error(
    status: int, text: str = "the reason", headers: dict[str, str] | None = None, **fields: Any
) -> Behaviour:
    return says({"error": {"message": text, "code": None, **fields}}, status, **(headers or {}))


def with_usage(usage: Any) -> Behaviour:
    return says({**reply(CODE), "usage": usage})


def refusing(fields: set[str], text: str, status: int = 400, **names: Any) -> Behaviour:
    """Refuses requests with any of the fields."""

    def behave(handler: Handler) -> None:
        if fields & set(handler.asked):
            return error(status, text, type="invalid_request_error", **names)(handler)
        return good(handler)

    return behave


def good(handler: Handler) -> None:
    handler.say(reply(CODE))


def streamed(*texts: str, end: bool = True) -> Behaviour:
    chunks = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    if end:
        usage = {"prompt_tokens": 12, "completion_tokens": 3}
        chunks += [
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": usage},
        ]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + (
        "data: [DONE]\n\n" if end else ""
    )
    return says(body.encode(), kind="text/event-stream")


def compressed(body: bytes) -> Behaviour:
    return says(body, content_encoding="gzip")


def raw(head: bytes, body: bytes, then: Callable[[Handler], None] | None = None) -> Behaviour:
    """Writes bytes as they are, and closes the connection."""

    def behave(handler: Handler) -> None:
        handler.wfile.write(head + b"\r\n" + body)
        if then is not None:
            then(handler)
        handler.close_connection = True

    return behave


def trickle(handler: Handler) -> None:
    """A byte every tenth of a second, for longer than any time limit of the tests."""
    raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n", b" " * 8)(handler)
    for _ in range(400):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


def hang_up(handler: Handler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def redirect(handler: Handler) -> None:
    if handler.path.startswith("/elsewhere"):
        return good(handler)
    handler.send_response(307)
    handler.send_header("location", "/elsewhere/chat/completions")
    handler.send_header("content-length", "0")
    return handler.end_headers()


def logprobs(value: Any) -> Behaviour:
    return says(reply(CODE, logprobs=value))


TOKEN = {"token": "a", "bytes": [97]}
GOOD_BODY = json.dumps(reply(CODE)).encode()
TOOL_CALL = {
    "id": "c",
    "type": "function",
    "function": {"name": "write", "arguments": json.dumps({"code": WHOLE})},
}
FUNCTION_CALL = {"name": "write", "arguments": json.dumps({"code": WHOLE})}
THOUGHT = f"<think>\nPerhaps so:\n{fenced(WHOLE)}But then"
SURROGATES = json.dumps(reply(CODE)).replace("Here it is", "Here\\ud800 it\\u0000 is").encode()
TWICE = {"exit": SERVER_TROUBLE, "requests": 2, "paid": 2, "rows": 0}
"""The outcome of an answer without a reply: it is asked for twice."""
THREE_TURNS = {"exit": NO_KERNEL, "requests": 3, "paid": 3, "rows": 3}
"""The outcome of replies without code: the model is told so twice."""
REFUSED = {"exit": CHANGE_SOMETHING, "requests": 1, "paid": 0, "rows": 0}

CASES: dict[str, Case] = {
    "a reply": Case([good]),
    "log-probs without token ids": Case([logprobs({"content": [{**TOKEN, "logprob": -0.5}] * 150})]),
    "log-probs: null": Case([logprobs({"content": None})]),
    "log-probs: an empty list": Case([logprobs({"content": []})]),
    "log-probs: only top_logprobs": Case([logprobs({"content": [{**TOKEN, "top_logprobs": []}]})]),
    "log-probs: integers and -Infinity": Case([logprobs({"content": [{**TOKEN, "logprob": 0}, {"logprob": -1e999}]})]),
    "log-probs: of a refusal": Case([logprobs({"content": None, "refusal": [{**TOKEN, "logprob": -1}]})]),
    "log-probs: the old lists": Case([logprobs({"tokens": ["a"], "token_logprobs": [-0.5]})]),
    "log-probs: a text": Case([logprobs("none")]),
    "log-probs fewer than token ids": Case(
        [says(reply(CODE, token_ids=[1, 2], logprobs={"content": [{"logprob": -1.0}]}))]),
    "token ids that are none": Case([says(reply(CODE, token_ids=["a", -1, 10**30]))]),
    "content as parts": Case([says(message(content=[{"type": "text", "text": CODE[:90]},
                                                    {"type": "text", "text": CODE[90:]}]))]),
    "content as parts with reasoning": Case(
        [says(message(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                               {"type": "text", "text": CODE}]))]),
    "content as one object": Case([says(message(content={"type": "text", "text": CODE}))]),
    "a text in place of the message": Case([says({"choices": [{"text": CODE, "finish_reason": "stop"}]})]),
    "a stream, not asked for": Case([streamed(CODE[:50], CODE[50:])]),
    "a stream that ends early": Case([streamed(CODE[:50], CODE[50:], end=False)]),
    "an error in a stream": Case([says(b'data: {"error": {"message": "out of memory"}}\n\n', kind="text/event-stream")],
                                 message="out of memory", **TWICE),
    "kernel and module in two blocks": Case([says(reply(f"{fenced(KERNEL, info='triton')}and\n{fenced(MODEL)}"))]),
    "usage missing": Case([says({key: value for key, value in reply(CODE).items() if key != "usage"})]),
    "usage: null": Case([with_usage(None)]),
    "usage: texts": Case([with_usage({"prompt_tokens": "twelve", "completion_tokens": "3"})]),
    "usage: negative and huge": Case([with_usage({"prompt_tokens": -1, "completion_tokens": 10**30})]),
    "usage: a list": Case([with_usage([1, 2])]),
    "an unknown finish reason": Case([says(reply(CODE, finish_reason="because"))]),
    "a finish reason that is no text": Case([says(reply(CODE, finish_reason={"type": "stop"}))]),
    "200 without choices": Case([says({"id": "1"})], message="no list of choices", **TWICE),
    "200 with empty choices": Case([says({**reply(CODE), "choices": []})], message="an empty list of choices", **TWICE),
    "200 with an error object": Case([says({"error": {"message": "the model crashed", "type": "server_error"}})],
                                     message="the model crashed", **TWICE),
    "200 with an error text": Case([says({"error": "no capacity"})], message="no capacity", **TWICE),
    "200 with an error in its choice": Case([says({"choices": [{"error": {"message": "provider failed"}}]})],
                                            message="provider failed", **TWICE),
    "200 with a number": Case([says(7)], message="not a JSON object", **TWICE),
    "200 with content that is a number": Case([says(message(content=7))], message="no message", **TWICE),
    "200 with a key error inside": Case([says({"error": {"message": "who are you", "code": 401}})],
                                        message="who are you", **{**REFUSED, "paid": 1}),
    "200 without a reply, once": Case([says({"detail": "warming up"}), good], requests=2, paid=2),
    "broken JSON": Case([says(b'{"choices": [{"mess')], message="JSON that cannot be read", **TWICE),
    "a web page": Case([says(b"<html>welcome</html>", kind="text/html")], message="welcome",
                       **{**REFUSED, "paid": 1}),
    "a web page that says it is JSON": Case([says(b"<html>welcome</html>")], message="welcome", **TWICE),
    "content: null": Case([says(message(content=None))], message="the reply is empty", **THREE_TURNS),
    "a refusal": Case([says(message(content=None, refusal="I will not."))], message="I will not.", **THREE_TURNS),
    "a tool call": Case([says(message("tool_calls", content=None, tool_calls=[TOOL_CALL]))], message="a tool call",
                        **THREE_TURNS),
    "a function call": Case([says(message("function_call", content="", function_call=FUNCTION_CALL))],
                            message="a tool call", **THREE_TURNS),
    "code in the reasoning alone": Case([says(message(content="", reasoning_content=CODE))], message="reasoning alone",
                                        **THREE_TURNS),
    "a thought that is cut off": Case([says(reply(THOUGHT, finish_reason="length"))], message="cut off", **THREE_TURNS),
    "a thought without an end": Case([says(reply(THOUGHT))], message="reasoning alone", **THREE_TURNS),
    "a content filter": Case([says(reply("", finish_reason="content_filter"))], message="withheld", **THREE_TURNS),
    "401": Case([error(401)], message="OPENAI_API_KEY", **REFUSED),
    "402": Case([error(402, "pay first")], message="pay first", **REFUSED),
    "404": Case([error(404)], message="check the name and the address", **REFUSED),
    "429 for ever": Case([error(429, "slow down", {"retry_after": "3600"})], exit=SERVER_TROUBLE, paid=0, rows=0,
                         message="it asks to wait 3600 s"),
    "429 once": Case([error(429, headers={"retry_after": "0"}), good], requests=2),
    "429: no quota": Case([error(429, "you spent it all", code="insufficient_quota")], message="you spent it all",
                          **REFUSED),
    "a body that names the wait": Case([error(429, details=[{"retryDelay": "90s"}])], exit=SERVER_TROUBLE, paid=0,
                                       rows=0, message="it asks to wait 90 s"),
    "500 once": Case([error(500), good], requests=2),
    "400: max_tokens, by its param": Case([refusing({"max_tokens"}, "no", param="max_tokens")], requests=2),
    "400: max_tokens, without param": Case([refusing({"max_tokens"}, "Use 'max_completion_tokens'.")], requests=3),
    "400: temperature, without param": Case([refusing({"temperature"}, "only the default")], requests=4),
    "403: seed, without param": Case([refusing({"seed"}, "not for you", status=403)], requests=2),
    "422: seed, by its place": Case(
        [refusing({"seed"}, "", status=422, detail=[{"loc": ["body", "seed"], "msg": "extra"}])], requests=2),
    "400 for everything": Case([error(400, "no such luck")], message="no such luck", **{**REFUSED, "requests": 4}),
    "a context that is too long": Case([error(400, "too long", code="context_length_exceeded")], message="too long",
                                       **REFUSED),
    "closed behind the headers": Case([raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n", b"")],
                                      message="cut its answer", **TWICE),
    "reset once": Case([hang_up, good], requests=2),
    "gzip": Case([compressed(gzip.compress(GOOD_BODY))]),
    "gzip that is none": Case([compressed(GOOD_BODY)], message="decompressed", **TWICE),
    "a redirection": Case([redirect], requests=2),
    "HTTP/1.0": Case([raw(b"HTTP/1.0 200 OK\r\n", GOOD_BODY)]),
    "another content type": Case([says(GOOD_BODY, kind="text/plain")]),
    "surrogates and NUL": Case([says(SURROGATES)]),
    "a mark of byte order": Case([says(b"\xef\xbb\xbf" + GOOD_BODY)]),
    "slower than the time limit": Case([trickle], message="did not finish in 2 s", **TWICE),
    "a listing that is broken": Case([good], listing=says(b"{", 200)),
    "a listing of another form": Case([good], listing=says({"models": ["m"]})),
    "a revision that no database takes": Case([says({**reply(CODE), "system_fingerprint": "\ud800\0" * 500})]),
}  # fmt: skip
"""By what the server does. `paid` counts the answers of status 200."""

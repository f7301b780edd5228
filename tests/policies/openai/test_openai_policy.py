"""The client against a real server on loopback: good answers kept whole, every bad one with its typed outcome."""

from __future__ import annotations

import email.utils
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernelwright.policies.base import (
    FinishReason,
    Message,
    PolicyError,
    PolicyRefused,
    PolicyUnavailable,
    PromptForm,
    ReplyKind,
    Request,
    Role,
    Sampling,
    Trouble,
)
from kernelwright.policies.openai.openai_policy import OpenAIPolicy
from kernelwright.policies.prices import read_prices
from kernelwright.policies.retrying import RetryingPolicy
from kernelwright.tools.markdown.fenced_code import extract_code
from tests.policies.loopback import Behaviour, Handler, loopback, reply

ROOT = Path(__file__).parents[3]


def ask(text: str = "add", **sampling: object) -> Request:
    return Request(messages=(Message(role=Role.USER, content=text),), sampling=Sampling(**sampling))


def good(handler: Handler) -> None:
    handler.say(reply())


def slow(handler: Handler) -> None:
    time.sleep(60)


def dripping_headers(handler: Handler) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nx-slow: " + b"a" * 1000:
        handler.wfile.write(bytes([byte]))
        time.sleep(0.05)


def endless_stream(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("connection", "close")
    handler.end_headers()
    while True:
        handler.wfile.write(b'data: {"choices": [{"delta": {"content": "na "}}]}\n\n')
        time.sleep(0.01)


def cut_off(handler: Handler) -> None:
    body = json.dumps(reply()).encode()
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[:40])
    handler.close_connection = True


def hang_up(handler: Handler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def error(status: int, **headers: str):
    def behave(handler: Handler) -> None:
        handler.say({"error": {"message": "the reason", "code": None}}, status=status, **headers)

    return behave


def says(content: object, status: int = 200, kind: str = "application/json"):
    return lambda handler: handler.say(content, status=status, kind=kind)


UNAVAILABLE = {
    "slow": (slow, Trouble.TIMEOUT),
    "a header that drips": (dripping_headers, Trouble.TIMEOUT),
    "a stream without an end": (endless_stream, Trouble.TIMEOUT),
    "cut off": (cut_off, Trouble.CUT_OFF),
    "reset": (hang_up, Trouble.CUT_OFF),
    "429": (error(429), Trouble.BUSY),
    "500": (error(500), Trouble.SERVER),
    "502 of a proxy, in HTML": (
        says(b"<html>bad gateway</html>", 502, "text/html"),
        Trouble.SERVER,
    ),
    "503": (error(503), Trouble.SERVER),
    "JSON that breaks off": (says(b'{"choices": [{"mess'), Trouble.NONSENSE),
    "no bytes": (says(b""), Trouble.NONSENSE),
    "not an object": (says([1, 2]), Trouble.NONSENSE),
    "empty choices": (says({"choices": []}), Trouble.NONSENSE),
    "choices that are text": (says({"choices": "hello"}), Trouble.NONSENSE),
    "content that is a number": (says(reply(7)), Trouble.NONSENSE),
}
REFUSED = {
    "401": (error(401), Trouble.KEY),
    "403": (error(403), Trouble.KEY),
    "404": (error(404), Trouble.MODEL),
    "400": (error(400), Trouble.REQUEST),
    "context": (
        says({"error": {"code": "context_length_exceeded", "message": "long"}}, 400),
        Trouble.CONTEXT,
    ),
    "quota": (
        says({"error": {"code": "insufficient_quota", "message": "pay"}}, 429),
        Trouble.QUOTA,
    ),
    "a web page": (says(b"<html>welcome</html>", 200, "text/html"), Trouble.NOT_THE_PROTOCOL),
}


@pytest.mark.parametrize("case", UNAVAILABLE)
def test_what_may_pass_is_unavailable_and_says_why(case):
    behaviour, trouble = UNAVAILABLE[case]
    with loopback(behaviour) as server, pytest.raises(PolicyUnavailable) as caught:
        OpenAIPolicy("m", server.url, timeout=0.6 if trouble is Trouble.TIMEOUT else 300).sample(
            [ask()]
        )
    assert caught.value.trouble is trouble
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_user_must_change_is_refused_and_says_what(case):
    behaviour, trouble = REFUSED[case]
    with loopback(behaviour) as server, pytest.raises(PolicyRefused) as caught:
        RetryingPolicy(OpenAIPolicy("m", server.url, key="sk-secret", timeout=300)).sample([ask()])
    assert caught.value.trouble is trouble
    assert "secret" not in str(caught.value)
    fewer_fields = len({frozenset(asked) for asked in server.asked})
    assert len(server.asked) == fewer_fields, "a refusal is asked again only with fewer fields"
    assert fewer_fields == (3 if trouble is Trouble.REQUEST else 1)


def test_a_server_that_is_down_is_unavailable():
    with loopback(good) as server:
        url = server.url
    with pytest.raises(PolicyUnavailable, match="is the server up") as caught:
        OpenAIPolicy("m", url, timeout=300).sample([ask()])
    assert caught.value.trouble is Trouble.CONNECTION


def test_an_answer_larger_than_the_cap_is_stopped(monkeypatch):
    monkeypatch.setattr("kernelwright.policies.http.connection.MAX_REPLY_BYTES", 1 << 16)
    with (
        loopback(endless_stream_fast) as server,
        pytest.raises(PolicyUnavailable, match="does not end"),
    ):
        OpenAIPolicy("m", server.url, timeout=300).sample([ask()])


def endless_stream_fast(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 8192)


def test_a_good_answer_is_kept_with_its_usage_price_and_fingerprint(tmp_path: Path):
    own = tmp_path / "prices.toml"
    own.write_text(
        '[[price]]\nhost = "127.0.0.1"\nmodel = "m*"\ninput = 1.0\ncached_input = 0.5\noutput = '
        "10.0\nas_of = "
        "2026-01-01\n"
    )
    with loopback(good) as server:
        policy = OpenAIPolicy("m1", server.url, key="sk-1", prices=read_prices(own))
        completion = policy.sample([ask(seed=3, stop=("END",))])[0]
        assert server.keys == ["Bearer sk-1"]
        assert (server.asked[0]["seed"], server.asked[0]["stop"]) == (3, ["END"])
        assert not {"return_token_ids", "logprobs"} & set(server.asked[0]), "only vLLM gives ids"
    assert (completion.text, completion.finish, completion.revision) == (
        "hello",
        FinishReason.STOP,
        "fp-1",
    )
    assert completion.usage.dollars == pytest.approx((8 * 1.0 + 4 * 0.5 + 3 * 10.0) / 1e6)
    assert (completion.exact, completion.token_ids, completion.seed) == (False, None, 3)
    assert OpenAIPolicy("m", "http://127.0.0.1:1/v1").name == "openai:m@http://127.0.0.1:1/v1"


def test_a_price_that_is_not_known_stays_unknown_and_uncounted_tokens_are_marked():
    with loopback(
        says({"choices": [{"message": {"content": "x" * 40}, "finish_reason": "length"}]})
    ) as server:
        completion = OpenAIPolicy("m", server.url).sample([ask("y" * 80)])[0]
    assert completion.usage.dollars is None
    assert (
        completion.usage.prompt_tokens,
        completion.usage.completion_tokens,
        completion.usage.estimated,
    ) == (
        20,
        10,
        True,
    )
    assert completion.finish is FinishReason.LENGTH


def test_text_that_no_database_takes_is_made_storable():
    with loopback(
        says(b'{"choices": [{"message": {"content": "a\\ud800b\\u0000c"}, "finish_reason": null}]}')
    ) as server:
        completion = OpenAIPolicy("m", server.url).sample([ask()])[0]
    completion.text.encode("utf-8")
    assert (completion.text, completion.finish) == ("a\ufffdb\ufffdc", FinishReason.OTHER)


def test_an_answer_without_text_is_empty_text_and_not_an_error():
    with loopback(says(reply(None))) as server:
        assert OpenAIPolicy("m", server.url).sample([ask()])[0].text == ""


def vllm_listing(handler: Handler) -> None:
    handler.say(
        {"data": [{"id": "m", "owned_by": "vllm", "root": "/nowhere", "max_model_len": 512}]}
    )


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {"content": None},
        {"content": [{"logprob": -1.0}]},
        {"content": [{"logprob": -1.0}, {"logprob": 3.0}]},
    ],
    ids=["none", "empty", "one for two tokens", "above zero"],
)
def test_log_probs_that_do_not_fit_the_tokens_make_an_answer_inexact(logprobs):
    spoken = {**reply(token_ids=[5, 6], logprobs=logprobs), "prompt_token_ids": [1, 2]}
    with loopback(says(spoken), listing=vllm_listing) as server:
        completion = OpenAIPolicy("m", server.url).sample([ask()])[0]
    assert (completion.exact, completion.logprobs, completion.token_ids) == (False, None, (5, 6))


def test_a_vllm_server_is_known_by_its_listing_and_asked_for_all_that_training_needs():
    spoken = {
        **reply(token_ids=[5, 6], logprobs={"content": [{"logprob": -1.0}, {"logprob": -0.5}]}),
        "prompt_token_ids": [1],
    }
    with loopback(says(spoken), listing=vllm_listing) as server:
        policy = OpenAIPolicy("m", server.url)
        completion = policy.sample([ask()])[0]
        asked = server.asked[0]
    assert (asked["return_token_ids"], asked["top_k"], asked["seed"]) == (True, -1, completion.seed)
    assert asked["max_tokens"] == 512
    assert completion.exact
    assert (completion.logprobs, completion.prompt_token_ids) == ((-1.0, -0.5), (1,))
    assert policy.capabilities.context == 512


def test_the_form_in_which_a_served_model_wants_to_be_asked_is_known_before_the_first_question(
    tiny_model, tmp_path
):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "kernelwright.json").write_text('{"prompt_form": "compact"}')
    entry = {
        "id": "m",
        "object": "model",
        "created": 1,
        "owned_by": "vllm",
        "root": str(folder),
        "max_model_len": 64,
    }
    with loopback(good, listing=says({"object": "list", "data": [entry]})) as server:
        policy = OpenAIPolicy("m", server.url)
        assert policy.prompt_form is PromptForm.COMPACT
        assert server.asked == [], "nothing was asked of the model"
        policy.close()
    assert OpenAIPolicy("m", "http://127.0.0.1:9/v1").prompt_form is PromptForm.CHAT, (
        "where nobody answers"
    )


def test_a_model_that_vllm_does_not_serve_is_refused_before_it_is_asked():
    with loopback(good, listing=vllm_listing) as server:
        with pytest.raises(PolicyRefused, match="it serves m") as caught:
            OpenAIPolicy("other", server.url).sample([ask()])
        assert server.asked == []
    assert caught.value.trouble is Trouble.MODEL


def test_a_field_that_the_server_names_as_unknown_is_left_out_once_and_for_all():
    def picky(handler: Handler) -> None:
        for field in ("seed", "max_tokens", "top_p"):
            if field in handler.asked:
                return handler.say(
                    {"error": {"message": f"no {field}", "param": field}}, status=400
                )
        return handler.say(reply())

    with loopback(picky) as server:
        policy = OpenAIPolicy("m", server.url)
        assert policy.sample([ask(max_tokens=7, seed=1)])[0].seed is None, (
            "the server drew without it"
        )
        policy.sample([ask(max_tokens=7, seed=1)])
        assert len(server.asked) == 5
        assert server.asked[-1]["max_completion_tokens"] == 7
        with pytest.raises(PolicyRefused, match="no top_p"):
            OpenAIPolicy("m", server.url).sample([ask(top_p=0.5)])


def test_requests_go_together_and_come_back_in_their_order():
    together = threading.Barrier(8)

    def echo(handler: Handler) -> None:
        """Answers when all eight are there, the last one first."""
        number = int(handler.asked["messages"][0]["content"])
        together.wait(300)
        time.sleep(0.02 * (8 - number))
        handler.say(reply(str(number)))

    with loopback(echo) as server:
        said = OpenAIPolicy("m", server.url, at_once=8).sample(
            [ask(str(number)) for number in range(8)]
        )
    assert [completion.text for completion in said] == [str(number) for number in range(8)]


def test_what_was_finished_is_not_lost_and_not_asked_for_twice():
    seen: list[str] = []

    def flaky(handler: Handler) -> None:
        text = handler.asked["messages"][0]["content"]
        seen.append(text)
        if text == "b" and seen.count("b") < 3:
            return handler.say({"error": {"message": "busy"}}, status=503)
        return handler.say(reply(text))

    with loopback(flaky) as server:
        with pytest.raises(PolicyUnavailable) as caught:
            OpenAIPolicy("m", server.url, at_once=1).sample([ask("a"), ask("b"), ask("c")])
        assert {place: completion.text for place, completion in caught.value.finished.items()} == {
            0: "a",
            2: "c",
        }
        seen.clear()
        said = RetryingPolicy(OpenAIPolicy("m", server.url), first_wait=0.01).sample(
            [ask("a"), ask("b"), ask("c")]
        )
    assert [completion.text for completion in said] == ["a", "b", "c"]
    assert sorted(seen) == ["a", "b", "b", "b", "c"]


@pytest.mark.parametrize("form", ["seconds", "date", "milliseconds"])
def test_a_server_that_names_its_wait_is_believed(form):
    header = {
        "seconds": {"retry_after": "9500"},
        "date": {"retry_after": email.utils.formatdate(time.time() + 9600, usegmt=True)},
        "milliseconds": {"retry_after_ms": "9500300"},
    }[form]
    waits: list[float] = []
    with loopback(error(429, **header), good) as server:
        policy = RetryingPolicy(OpenAIPolicy("m", server.url), budget=20_000, sleep=waits.append)
        assert policy.sample([ask()])[0].text == "hello"
    assert len(waits) == 1
    assert 9000 <= waits[0] <= 9600, (
        "a date is by the second, and some time passes until it is read"
    )


def test_a_wait_beyond_the_budget_is_not_begun():
    waits: list[float] = []
    with (
        loopback(error(429, retry_after="3600")) as server,
        pytest.raises(PolicyUnavailable, match="429"),
    ):
        RetryingPolicy(OpenAIPolicy("m", server.url), budget=30, sleep=waits.append).sample([ask()])
    assert waits == []


def test_a_wrong_key_stops_the_rest_of_the_batch():
    with loopback(error(401)) as server, pytest.raises(PolicyRefused):
        OpenAIPolicy("m", server.url, at_once=1).sample([ask(str(number)) for number in range(20)])
    assert len(server.asked) == 1


def test_many_threads_share_one_policy():
    said: list[str] = []
    with loopback(good) as server:
        policy = OpenAIPolicy("m", server.url)
        threads = [
            threading.Thread(target=lambda: said.append(policy.sample([ask()])[0].text))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        policy.close()
        assert policy.sample([ask()])[0].text == "hello", "a closed policy opens again"
        policy.close()
    assert said == ["hello"] * 8


@pytest.mark.parametrize("url", ["http://", "http://127.0.0.1:99999/v1", "http://no such host/v1"])
def test_an_address_that_is_none_has_a_typed_outcome(url):
    with pytest.raises(PolicyError) as caught:
        OpenAIPolicy("m", url, timeout=300).sample([ask()])
    assert "\n" not in str(caught.value)


def without_end(handler: Handler) -> None:
    """The whole reply, and a length that promises more."""
    body = json.dumps(reply()).encode()
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(body) + 1))
    handler.end_headers()
    handler.wfile.write(body)
    handler.close_connection = True


MULTILINE_EVENT = (
    b'data: {"choices": [{"index": 0, "finish_reason": "stop",\ndata: "message": '
    b'{"content": "hello"}}]}\n\n'
)
LINES_OF_EVENTS = b"\n".join(
    b'data: {"choices": [{"delta": {"content": "%s"}}]}' % part for part in (b"he", b"ll", b"o")
)
WHOLE = {
    "a list of one reply": says([reply()]),
    "UTF-16": says(json.dumps(reply()).encode("utf-16"), kind="application/json"),
    "another charset": says(
        json.dumps(reply("hell\u00f6"), ensure_ascii=False).encode("latin-1"),
        kind="application/json; charset=latin-1",
    ),
    "a byte order mark": says(b"\xef\xbb\xbf" + json.dumps(reply()).encode()),
    "an event over several lines": says(MULTILINE_EVENT, kind="text/event-stream"),
    "events without empty lines between": says(LINES_OF_EVENTS, kind="text/event-stream"),
    "a length that promises more": without_end,
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_reply_that_is_whole_is_read_in_whatever_form_it_comes(case):
    with loopback(WHOLE[case]) as server:
        [completion] = OpenAIPolicy("m", server.url, timeout=300).sample([ask()])
    assert completion.text in ("hello", "hell\u00f6")
    assert len(server.asked) == 1


OTHER_APIS = {
    "Anthropic": {
        "type": "message", "stop_reason": "max_tokens", "usage": {"input_tokens": 12, "output_tokens": 3},
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hel"},
                    {"type": "text", "text": "lo"}],
    },
    "Gemini": {
        "candidates": [{"finishReason": "MAX_TOKENS", "content": {"role": "model", "parts": [
            {"text": "hm", "thought": True}, {"text": "hel"}, {"text": "lo"}]}}],
        "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 3},
    },
    "Ollama chat": {
        "message": {"role": "assistant", "content": "hello", "thinking": "hm"}, "done_reason": "length",
        "prompt_eval_count": 12, "eval_count": 3,
    },
    "Ollama generate": {"response": "hello", "done_reason": "length", "prompt_eval_count": 12, "eval_count": 3},
    "Responses": {
        "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"},
        "usage": {"input_tokens": 12, "output_tokens": 3},
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "hello", "annotations": []}]},
        ],
    },
    "Converse": {
        "output": {"message": {"role": "assistant", "content": [{"text": "hello"}]}}, "stopReason": "max_tokens",
        "usage": {"inputTokens": 12, "outputTokens": 3},
    },
}  # fmt: skip


@pytest.mark.parametrize("api", OTHER_APIS)
def test_a_reply_in_another_api_s_form_is_read_and_not_asked_for_again(api):
    with loopback(says(OTHER_APIS[api])) as server:
        policy = RetryingPolicy(
            OpenAIPolicy("m", server.url, timeout=300), budget=10, first_wait=0.01
        )
        [completion] = policy.sample([ask()])
    thought = "<think>\nhm\n</think>\n\n" if '"hm"' in json.dumps(OTHER_APIS[api]) else ""
    assert (completion.text, completion.finish) == (f"{thought}hello", FinishReason.LENGTH)
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (12, 3)
    assert len(server.asked) == 1


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_the_reasoning_of_a_server_is_kept_and_its_code_is_no_answer(field):
    answer = "```python\nanswer = 2\n```"
    message = {"content": answer, field: "I try:\n```python\ndraft = 1\n```"}
    whole = reply()
    whole["choices"][0]["message"] |= message
    with loopback(says(whole)) as server:
        [completion] = OpenAIPolicy("m", server.url, timeout=300).sample([ask()])
    assert completion.kind is ReplyKind.TEXT
    assert completion.text == f"<think>\n{message[field]}\n</think>\n\n{answer}"
    assert extract_code(completion.text).strip() == "answer = 2"


def test_thinking_and_its_budget_are_asked_of_a_server():
    with loopback(says(reply())) as server:
        policy = OpenAIPolicy("m", server.url, timeout=300)
        request = ask()
        policy.sample([request.with_(sampling=Sampling(thinking=False, thinking_tokens=64))])
    [asked] = server.asked
    assert asked["chat_template_kwargs"] == {"enable_thinking": False}
    assert asked["thinking_token_budget"] == 64


@pytest.mark.parametrize(
    "body", [{"message": "the model is loading"}, {"output": []}, {"content": None}, {"id": "1"}]
)
def test_an_answer_without_a_message_is_no_reply_of_another_api(body):
    with (
        loopback(says(body)) as server,
        pytest.raises(PolicyUnavailable, match="no reply of a model"),
    ):
        OpenAIPolicy("m", server.url, timeout=300).sample([ask()])


def test_a_stream_of_ollama_s_own_is_joined():
    lines = [{"message": {"content": part}, "done": False} for part in ("hel", "lo")]
    lines.append({"message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 3})
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    with loopback(says(body, kind="application/x-ndjson")) as server:
        [completion] = OpenAIPolicy("m", server.url, timeout=300).sample([ask()])
    assert completion.text == "hello"


def test_a_stream_that_breaks_off_within_an_event_keeps_what_came_before():
    with loopback(says(LINES_OF_EVENTS[:-9], kind="text/event-stream")) as server:
        [completion] = OpenAIPolicy("m", server.url, timeout=300).sample([ask()])
    assert (completion.text, completion.finish) == ("hell", FinishReason.OTHER)


def test_a_web_page_is_quoted_by_its_words():
    page = (
        b"<!DOCTYPE html><html><head><style>p { x }</style><title>Sign "
        b"in</title></head><body><p>VPN</p></body></html>"
    )
    with (
        loopback(says(page, kind="text/html")) as server,
        pytest.raises(PolicyRefused, match=r": Sign in VPN$"),
    ):
        OpenAIPolicy("m", server.url, timeout=300).sample([ask()])


@pytest.mark.parametrize("key", ["sk-secret-1\n", "  sk-secret-1 "])
def test_a_key_that_was_read_from_a_file_loses_its_line_end(key):
    with loopback(good) as server:
        OpenAIPolicy("m", server.url, key=key, timeout=300).sample([ask()])
    assert set(server.keys) == {"Bearer sk-secret-1"}


@pytest.mark.parametrize("key", ["sk-ü", "sk-a\x00b", "sk-a\nb"])
def test_a_key_that_no_header_can_hold_is_refused_by_the_name_of_its_variable(key):
    with (
        loopback(good) as server,
        pytest.raises(PolicyRefused, match="OPENAI_API_KEY holds a character") as caught,
    ):
        OpenAIPolicy("m", server.url, key=key, timeout=300).sample([ask()])
    assert caught.value.trouble is Trouble.KEY
    assert server.asked == []


def test_an_address_may_have_a_query_and_the_path_of_chat_requests():
    paths = []

    def told(handler: Handler) -> None:
        paths.append(handler.path)
        good(handler)

    with loopback(told) as server:
        for ending in ("?api-version=preview", "/chat/completions?api-version=preview", "/#top"):
            OpenAIPolicy("m", server.url + ending, timeout=300).sample([ask()])
    assert paths == ["/v1/chat/completions?api-version=preview"] * 2 + ["/v1/chat/completions"]


def moved(status: int) -> Behaviour:
    return lambda handler: handler.say(b"", status=status, kind="text/html", location="/v2/models")


@pytest.mark.parametrize("status", [301, 302, 303])
@pytest.mark.parametrize("listing", [says({"object": "list", "data": []}), error(404)])
def test_a_redirection_that_loses_the_request_is_told_with_its_address(status, listing):
    with (
        loopback(moved(status), listing=listing) as server,
        pytest.raises(
            PolicyRefused, match=r"redirects to .*/v2/models: give the address"
        ) as caught,
    ):
        OpenAIPolicy("m", server.url, timeout=300).sample([ask()])
    assert caught.value.trouble is Trouble.NOT_THE_PROTOCOL
    assert len(server.asked) == 1


def test_a_password_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(PolicyRefused, match="holds a password") as caught:
        OpenAIPolicy("m", "http://me:hunter2@127.0.0.1:9/v1", timeout=300).sample([ask()])
    assert "hunter2" not in str(caught.value)


def test_a_server_without_tls_is_told_from_one_that_is_down():
    with loopback(good) as server, pytest.raises(PolicyRefused, match="agree on no TLS connection"):
        OpenAIPolicy("m", server.url.replace("http:", "https:"), timeout=300).sample([ask()])


def test_ctrl_c_ends_the_wait_for_a_slow_server_at_once():
    code = (
        "import sys; from kernelwright.policies.opening.open_policy import open_policy; from "
        "kernelwright.policies.base import Message, Request, "
        "Role\n"
        "print('asking', flush=True)\n"
        "try: open_policy(sys.argv[1]).sample([Request(messages=(Message(role=Role.USER, content='x'),))])\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    with loopback(lambda handler: time.sleep(600)) as server:
        command = [sys.executable, "-c", code, f"openai:m@{server.url}"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "asking\n"
        deadline = time.monotonic() + 400
        while not server.asked and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=500)
    assert said == "interrupted\n"

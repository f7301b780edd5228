"""Anthropic's Messages API by its own client, against a server on loopback that speaks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelwright.policies.base import (
    FinishReason,
    Message,
    PolicyError,
    PolicyRefused,
    PolicyUnavailable,
    ReplyKind,
    Request,
    Role,
    Sampling,
    Trouble,
)
from kernelwright.policies.http.server import ExtraFields
from kernelwright.policies.opening.open_policy import open_policy
from kernelwright.policies.prices import read_prices
from tests.policies.loopback import Handler, loopback

pytest.importorskip("anthropic", reason="the extra `anthropic` is not installed")

TEXT = {"type": "text", "text": "hello"}


def ask(**sampling: Any) -> Request:
    messages = (
        Message(role=Role.SYSTEM, content="be short"),
        Message(role=Role.USER, content="add"),
    )
    return Request(messages=messages, sampling=Sampling(**sampling))


def says(*content: Any, status: int = 200, headers: dict[str, str] | None = None, **fields: Any):
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(content),
            "stop_reason": "end_turn", "usage": {"input_tokens": 10, "output_tokens": 3, "cache_read_input_tokens": 30,
                                                 "cache_creation_input_tokens": 2}} | fields  # fmt: skip
    return lambda handler: handler.say(body, status=status, **(headers or {}))


def error(status: int, kind: str, **headers: str):
    content = {"type": "error", "error": {"type": kind, "message": "the reason"}}
    return lambda handler: handler.say(content, status=status, **headers)


def test_a_reply_is_kept_with_its_usage_and_price(tmp_path: Path):
    prices = tmp_path / "prices.toml"
    prices.write_text('[[price]]\nhost = "127.0.0.1"\nmodel = "m"\ninput = 1\ncached_input = 0.1\noutput = 10\n'
                      "as_of = 2026-01-01\n")  # fmt: skip
    seen: list[Handler] = []

    def behave(handler: Handler) -> None:
        seen.append(handler)
        says({"type": "thinking", "thinking": "hm"}, TEXT, {"type": "text", "text": " there"})(
            handler
        )

    with loopback(behave) as server:
        policy = open_policy(f"anthropic:m@{server.url}", key="sk-1", prices=prices)
        [completion] = policy.sample([ask(max_tokens=7, seed=3, stop=("END",))])
        asked = server.asked[0]
    assert seen[0].path == "/v1/messages"
    assert "sk-1" in (seen[0].headers["x-api-key"] or seen[0].headers["authorization"])
    assert asked == {
        "model": "m", "max_tokens": 7, "system": "be short", "stop_sequences": ["END"],
        "messages": [{"role": "user", "content": "add"}],
    }  # fmt: skip
    assert (completion.text, completion.finish, completion.kind) == (
        "<think>\nhm\n</think>\n\nhello there",
        FinishReason.STOP,
        ReplyKind.TEXT,
    )
    usage = completion.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_prompt_tokens) == (42, 3, 30)
    assert usage.dollars == pytest.approx((12 * 1 + 30 * 0.1 + 3 * 10) / 1e6)
    assert (completion.seed, completion.exact) == (None, False), "the API takes no seed"
    assert completion.policy == f"anthropic:m@{server.url.removesuffix('/v1')}"


def test_an_address_may_have_a_query_and_the_path_of_messages():
    paths: list[str] = []

    def behave(handler: Handler) -> None:
        paths.append(handler.path)
        says(TEXT)(handler)

    with loopback(behave) as server:
        for ending in ("?api-version=1", "/messages?api-version=1", ""):
            open_policy(f"anthropic:m@{server.url}{ending}").sample([ask()])
    assert paths == ["/v1/messages?api-version=1"] * 2 + ["/v1/messages"]


def test_a_reply_in_openai_s_form_is_read():
    body = {"choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2}}  # fmt: skip
    with loopback(lambda handler: handler.say(body)) as server:
        [completion] = open_policy(f"anthropic:m@{server.url}").sample([ask()])
    assert (completion.text, completion.finish) == ("hello", FinishReason.LENGTH)
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (5, 2)


def test_sampling_and_the_user_s_fields_are_sent_where_they_are_named():
    extra = ExtraFields(
        reasoning_effort="high", body={"max_tokens": 9, "thinking": {"type": "adaptive"}}
    )
    with loopback(says(TEXT)) as server:
        open_policy(f"anthropic:m@{server.url}", extra=extra).sample(
            [ask(temperature=0.5, top_k=4)]
        )
        asked = server.asked[0]
    assert (asked["temperature"], asked["top_k"], asked["max_tokens"]) == (0.5, 4, 9)
    assert (asked["output_config"], asked["thinking"]) == ({"effort": "high"}, {"type": "adaptive"})


@pytest.mark.parametrize(
    ("content", "fields", "kind", "finish"),
    [
        (
            [{"type": "tool_use", "name": "t", "input": {}}],
            {"stop_reason": "tool_use"},
            "tool_call",
            "stop",
        ),
        (
            [{"type": "thinking", "thinking": "hm"}],
            {"stop_reason": "max_tokens"},
            "reasoning",
            "length",
        ),
        ([], {"stop_reason": "refusal", "usage": None}, "empty", "filtered"),
        ([TEXT], {"stop_reason": 7, "usage": {"input_tokens": "many"}}, "text", "other"),
    ],
)
def test_replies_of_every_form_are_told_apart(content, fields, kind, finish):
    with loopback(says(*content, **fields)) as server:
        [completion] = open_policy(f"anthropic:m@{server.url}").sample([ask()])
    assert (completion.kind, completion.finish) == (kind, finish)


@pytest.mark.parametrize(
    ("behaviour", "kind", "trouble", "requests"),
    [
        (error(401, "authentication_error"), PolicyRefused, Trouble.KEY, 1),
        (error(404, "not_found_error"), PolicyRefused, Trouble.MODEL, 1),
        (error(400, "invalid_request_error"), PolicyRefused, Trouble.REQUEST, 1),
        (error(402, "billing_error"), PolicyRefused, Trouble.QUOTA, 1),
        (error(413, "request_too_large"), PolicyRefused, Trouble.CONTEXT, 1),
        (error(429, "rate_limit_error", retry_after="3600"), PolicyUnavailable, Trouble.BUSY, 1),
        (error(200, "overloaded_error"), PolicyUnavailable, Trouble.NONSENSE, 2),
    ],
)
def test_errors_quote_the_server_and_name_the_key(behaviour, kind, trouble, requests):
    with loopback(behaviour) as server, pytest.raises(kind, match="the reason") as caught:
        open_policy(f"anthropic:m@{server.url}", key="sk-secret", patience=5).sample([ask()])
    assert caught.value.trouble is trouble
    assert len(server.asked) == requests
    assert ("ANTHROPIC_API_KEY" in str(caught.value)) == (trouble is Trouble.KEY)


def test_an_overloaded_server_is_asked_again():
    with loopback(error(529, "overloaded_error"), says(TEXT)) as server:
        assert open_policy(f"anthropic:m@{server.url}").sample([ask()])[0].text == "hello"


def test_a_server_that_is_down_is_unavailable():
    with loopback(says(TEXT)) as server:
        url = server.url
    with pytest.raises(PolicyError, match="is the server up"):
        open_policy(f"anthropic:m@{url}", patience=0).sample([ask()])


def test_models_of_the_service_have_prices():
    assert read_prices().of("https://api.anthropic.com", "claude-sonnet-4-5-20250929") is not None

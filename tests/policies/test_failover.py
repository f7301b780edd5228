"""Several servers of one model, on loopback: the next one is asked where one fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.policies.base import (
    Message,
    PolicyRefused,
    PolicyUnavailable,
    Request,
    Role,
    Trouble,
)
from kernelwright.policies.opening.open_policy import open_policy
from tests.policies.loopback import Handler, loopback, reply

ASK = Request(messages=(Message(role=Role.USER, content="add"),))


def good(handler: Handler) -> None:
    handler.say(reply())


def fails(status: int, message: str = "no", **headers: str):
    return lambda handler: handler.say({"error": {"message": message}}, status=status, **headers)


def nonsense(handler: Handler) -> None:
    handler.say({"usage": {"prompt_tokens": 5, "completion_tokens": 1}})


def opened(*urls: str, patience: float = 0.0):
    return open_policy(f"openai:m@{','.join(urls)}", patience=patience)


def test_the_second_server_answers_where_the_first_fails_and_is_asked_first_from_then_on():
    with loopback(fails(503)) as first, loopback(good) as second:
        policy = opened(first.url, second.url)
        assert policy.name == f"openai:m@{first.url},{second.url}"
        assert policy.sample([ASK])[0].policy == f"openai:m@{second.url}"
        policy.sample([ASK])
        policy.close()
        assert (len(first.asked), len(second.asked)) == (1, 2)


@pytest.mark.parametrize("status", [401, 402, 404, 429, 500])
def test_a_refusal_by_one_server_is_none_by_the_next(status):
    with loopback(fails(status)) as first, loopback(good) as second:
        assert opened(first.url, second.url).sample([ASK])[0].text == "hello"


def test_a_server_that_is_down_is_passed_over():
    with loopback(good) as first:
        down = first.url
    with loopback(good) as second:
        assert opened(down, second.url).sample([ASK])[0].text == "hello"


def test_a_request_that_no_server_takes_is_refused_by_the_first():
    with loopback(fails(400, "bad words")) as first, loopback(good) as second:
        with pytest.raises(PolicyRefused, match="bad words"):
            opened(first.url, second.url).sample([ASK])
        assert second.asked == []


def test_where_all_fail_the_shortest_wait_is_told():
    later, soon = fails(429, "later", retry_after="900"), fails(429, "soon", retry_after="70")
    with (
        loopback(later) as first,
        loopback(soon) as second,
        pytest.raises(
            PolicyUnavailable, match=r"soon; it asks to wait 70 s, and --patience is 5\.0 s"
        ),
    ):
        opened(first.url, second.url, patience=5).sample([ASK])


def test_an_answer_without_a_reply_is_paid_for_twice_at_most_over_all_servers():
    with loopback(nonsense) as first, loopback(nonsense) as second:
        with pytest.raises(PolicyUnavailable) as caught:
            opened(first.url, second.url, patience=60).sample([ASK])
        assert (len(first.asked), len(second.asked)) == (1, 1)
    assert caught.value.trouble is Trouble.NONSENSE
    assert [reply.usage.prompt_tokens for reply in caught.value.paid[0]] == [5, 5]


def test_what_one_server_answered_is_not_asked_of_the_next_and_what_was_paid_counts():
    def one_of_two(handler: Handler) -> None:
        text = handler.asked["messages"][0]["content"]
        good(handler) if text == "a" else nonsense(handler)

    requests = [Request(messages=(Message(role=Role.USER, content=text),)) for text in "ab"]
    with loopback(one_of_two) as first, loopback(good) as second:
        first_answer, second_answer = opened(first.url, second.url).sample(requests)
        assert len(second.asked) == 1
    assert (first_answer.usage.prompt_tokens, second_answer.usage.prompt_tokens) == (12, 17)


@pytest.mark.parametrize("urls", ["http://a/v1,", "http://a/v1,ftp://b", ",http://a/v1"])
def test_addresses_of_another_kind_are_refused(urls: str):
    with pytest.raises(PolicyRefused, match="URL1,URL2"):
        open_policy(f"openai:m@{urls}")


def test_a_file_of_prices_counts_for_each_server(tmp_path: Path):
    prices = tmp_path / "prices.toml"
    prices.write_text(
        '[[price]]\nhost = "*"\nmodel = "m"\ninput = 1\noutput = 1\nas_of = 2026-01-01\n'
    )
    with loopback(fails(500)) as first, loopback(good) as second:
        policy = open_policy(f"openai:m@{first.url},{second.url}", prices=prices)
        assert policy.sample([ASK])[0].usage.dollars == pytest.approx(15e-6)

"""Servers' answers drawn by dimensions: none leads to an exception of another kind, and a whole one gives its text."""

import random

import pytest

from bench.drawn_answers import ORDINARY, AnswerServer, DrawnAnswer, draw, fault_of


@pytest.fixture(scope="module")
def server():
    return AnswerServer()


def drawn(count: int) -> list[DrawnAnswer]:
    """Answers that keep nobody waiting."""
    generator = random.Random(7)
    answers = (draw(generator) for _ in range(100 * count))
    quick = (answer for answer in answers if answer.framing not in ("slowly", "never"))
    return [next(quick) for _ in range(count)]


@pytest.mark.parametrize("answer", drawn(40), ids=repr)
def test_a_drawn_answer_gives_a_completion_or_a_policy_error(server, answer):
    fault, _ = fault_of(answer, server)
    assert not fault


@pytest.mark.parametrize("wait", ["seconds", "date", "milliseconds"])
def test_a_busy_server_names_its_wait_in_each_form(server, wait):
    assert fault_of(ORDINARY._replace(status=429, wait=wait), server) == ("", "busy")


@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate"])
@pytest.mark.parametrize("document", ["json", "events with comments", "lines", "utf-16"])
def test_a_whole_answer_without_a_content_type_is_read(server, document, encoding):
    answer = ORDINARY._replace(content_type=None, document=document, encoding=encoding)
    assert fault_of(answer, server) == ("", "completion")

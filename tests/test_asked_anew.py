"""An answer that was wrong while it was timed is asked of a fresh process: who is wrong there too is wrong, and no cheat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.checks import Checks
from tools.draws import Draw
from tools.judge import Judge, Rules
from tools.problem import Problem
from tools.results import Cheat, Failed, Failure, Fault

RIGHT = (Path(__file__).parent / "kernels" / "good" / "vector_add.py").read_text()
REFERENCE = """
import torch
import torch.nn as nn

n = 1000


class Model(nn.Module):
    def forward(self, x, y):
        return x + y


def get_inputs():
    return [torch.randn(n), torch.randn(n)]


def get_init_inputs():
    return []
"""
PROBLEM = Problem(name="add", source=REFERENCE)
ACCUSED = Failure(fault=Fault.CHEAT, cheat=Cheat.CACHE, message="an answer remembered")


@contextmanager
def checked(judge: Judge) -> Iterator[Checks]:
    """A right candidate after all its checks."""
    try:
        with judge._opened(judge.situation(PROBLEM), 1, Rules(), None, lambda _: None) as checks:
            checks.load(RIGHT)
            checks.all_draws()
            yield checks
    finally:
        judge.buffers.release()


def heard(judge: Judge, source: str) -> Failure:
    """What is said of it after its draw is asked anew."""
    with checked(judge) as checks:
        checks.doubted = checks.expect(Draw.OWN)
    try:
        return judge._asked_anew(checks, source, Rules(), ACCUSED, None, lambda _: None)
    finally:
        judge.buffers.release()


@pytest.fixture(scope="module")
def judge():
    with Judge("cpu") as judge:
        yield judge


def test_who_is_right_in_a_fresh_process_remembered_an_answer(judge):
    assert heard(judge, RIGHT) == ACCUSED


def test_who_is_wrong_there_too_is_wrong_and_no_cheat(judge):
    failure = heard(judge, RIGHT.replace("x + y", "x + y + 0.01"))
    assert (failure.fault, failure.cheat) == (Fault.MISMATCH, None)
    assert "again in a fresh process" in failure.message


def test_who_does_something_else_there_is_accused_of_what_it_did_first(judge):
    patched = RIGHT.replace("import torch\n", "import torch\ntorch.empty_like = lambda x: x\n", 1)
    assert heard(judge, patched) == ACCUSED


def test_a_timed_answer_that_only_eager_refuses_is_right(judge):
    with checked(judge) as checks:
        expected = checks.expect(Draw.OWN, exact=False)
        checks.exchange.places[0].tensor.copy_(expected.eager[0])
        expected.eager = [expected.eager[0] + 1.0]
        checks.timed(expected)
        assert checks.doubted is None
        assert checks.checks[-1].passed


def test_work_that_ends_after_the_time_is_up_is_not_looked_at(judge, monkeypatch):
    """While float64 is computed the right answer arrives in the place: too late."""
    from tools import checks as module

    with checked(judge) as checks:
        expected, place = checks.expect(Draw.OWN, exact=False), checks.exchange.places[0].tensor
        place.copy_(expected.eager[0] + 1.0)

        def late(*given):
            place.copy_(expected.eager[0])
            return original(*given)

        original = module.precise
        monkeypatch.setattr(module, "precise", late)
        with pytest.raises(Failed):
            checks.timed(expected)
        assert checks.doubted is expected

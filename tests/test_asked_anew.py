"""An answer that was wrong while it was timed is asked of a fresh process: who is wrong there too is wrong, and no cheat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.draws import Draw
from tools.judge import Judge, Rules
from tools.problem import Problem
from tools.results import Cheat, Failure, Fault

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
ACCUSED = Failure(fault=Fault.CHEAT, cheat=Cheat.CACHE, message="an answer remembered")


def heard(judge: Judge, source: str) -> Failure:
    """What is said of it after its draw is asked anew."""
    problem = Problem(name="add", source=REFERENCE)
    situation = judge.situation(problem)
    try:
        with judge._opened(situation, 1, Rules(), None, lambda _: None) as checks:
            checks.load(RIGHT)
            checks.all_draws()
            checks.doubted = checks.expect(Draw.OWN)
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

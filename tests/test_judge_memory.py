"""A problem that finds no room on the device: what earlier ones left there is given back, and it is tried once more."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from tools.judge import Judge, Rules
from tools.problem import Problem
from tools.situation import DoesNotFit

KERNEL = (Path(__file__).parent / "kernels" / "good" / "vector_add.py").read_text()
REFERENCE = """
import sys
import weakref

import torch
import torch.nn as nn

n = 1000


class Model(nn.Module):
    def forward(self, x, y):
        sys.tried = getattr(sys, "tried", 0) + 1
        sys.inputs_seen.append(weakref.ref(x))
        if sys.tried in SHORT:
            raise torch.cuda.OutOfMemoryError("no room")
        return x + y


def get_inputs():
    return [torch.randn(n), torch.randn(n)]


def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def untried(monkeypatch):
    monkeypatch.setattr(sys, "tried", 0, raising=False)
    monkeypatch.setattr(sys, "inputs_seen", [], raising=False)


def short_of_room(*runs: int) -> Problem:
    """The first runs of a reference are its set-up, later ones the checks."""
    return Problem(name="short", source=REFERENCE.replace("SHORT", str(runs)))


@pytest.mark.parametrize("run", [1, 6, 9])
def test_what_finds_no_room_is_tried_once_more(run):
    with Judge("cpu") as judge:
        judged = judge.judge(short_of_room(run), KERNEL, Rules())
        assert judged.correctness.failure is None
        assert sys.tried > run
        assert judge.buffers._used == [], "what a candidate was given is taken back"


def test_what_finds_no_room_twice_is_said_in_one_line_and_the_next_verdict_is_whole():
    with Judge("cpu") as judge:
        with pytest.raises(DoesNotFit, match="short does not fit on cpu: free its memory, or use smaller sizes"):
            judge.judge(short_of_room(1, 2), KERNEL, Rules())
        assert judge.buffers._used == []
        assert judge.judge(short_of_room(1, 2), KERNEL, Rules()).correctness.failure is None


@pytest.mark.parametrize("runs", [(1, 2), (6, 12), (9, 14)])
def test_an_error_that_is_kept_keeps_no_tensor(runs):
    """A pool of processes keeps the last error that it sent. On an H200 five problems found no room after one that did not fit."""
    with Judge("cpu") as judge:
        with pytest.raises(DoesNotFit) as kept:
            judge.judge(short_of_room(*runs), KERNEL, Rules())
        assert kept.value.__traceback__ is not None
        gc.collect()
        judge.forget()
        assert sys.inputs_seen
        assert not [seen() for seen in sys.inputs_seen if seen() is not None]

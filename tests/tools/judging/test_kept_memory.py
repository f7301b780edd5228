"""What a judge keeps for the next candidate is bounded by its bytes, and what was dropped is made again alike."""

from __future__ import annotations

import pytest
import torch

from kernelwright.tools.judging import judge as judging
from kernelwright.tools.judging.judge import Judge
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.sandbox import Kind, Zygote

LAYER_BYTES = 4 * 512 * 512
LARGE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(512, 512)

    def forward(self, x):
        return self.layer(x) + NUMBER


def get_inputs():
    return [torch.randn(4, 512)]


def get_init_inputs():
    return []
"""


def problem(number: int) -> Problem:
    return Problem(name=f"large {number}", source=LARGE.replace("NUMBER", str(number)))


@pytest.fixture(scope="module")
def zygote():
    with Zygote(Kind.INTERPRET) as found:
        yield found


def bounded(zygote, monkeypatch, layers: int, sharers: int = 1) -> Judge:
    monkeypatch.setattr(judging, "KEPT_BYTES_ON_CPU", layers * LAYER_BYTES)
    return Judge("cpu", zygote, sharers=sharers)


def test_a_judge_on_a_cpu_keeps_no_more_bytes_than_its_bound_however_many_large_modules_it_sees(zygote, monkeypatch):
    with bounded(zygote, monkeypatch, layers=6) as judge:
        for number in range(12):
            judge.expected(problem(number), 7 << 16, Draw.OWN, 0)
            judge.expected(problem(number), 7 << 16, Draw.OWN, 1, shaken=True)
            assert judge.kept_bytes() <= 6 * LAYER_BYTES
        assert judge.kept_bytes() > 2 * LAYER_BYTES, "the module that was used last is kept"


def test_the_bound_is_that_of_all_judges_together_and_the_last_module_stays_however_large(zygote, monkeypatch):
    with bounded(zygote, monkeypatch, layers=6, sharers=12) as judge:
        first = judge.expected(problem(1), 7 << 16, Draw.OWN, 0)
        assert judge.expected(problem(1), 7 << 16, Draw.OWN, 0) is first
        judge.expected(problem(2), 7 << 16, Draw.OWN, 0)
        again = judge.expected(problem(1), 7 << 16, Draw.OWN, 0)
        assert again is not first
        assert torch.equal(again.eager[0], first.eager[0]), "made again from the same seed"

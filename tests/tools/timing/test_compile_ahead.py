"""A reference is compiled on tensors without data, and torch.compile finds it afterwards."""

from __future__ import annotations

import threading

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

from bench.judge_suites import problem_of
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.reference import Reference
from kernelwright.tools.report import Environment
from kernelwright.tools.timing.baseline import Baselines
from kernelwright.tools.timing.compile_ahead import compile_ahead


@pytest.mark.slow
def test_what_is_compiled_ahead_is_found_by_torch_compile():
    problem = problem_of("linear_gelu")
    reference = Reference(problem, "cpu")
    model, inputs = reference.model(0), reference.inputs(0)
    with fresh_cache(), torch.no_grad():
        try:
            assert compile_ahead(problem, "cpu") == ""
            torch._dynamo.reset()
            counters.clear()
            assert torch.compile(model)(*inputs).allclose(model(*inputs), atol=1e-5)
            assert counters["inductor"]["fxgraph_cache_hit"] == 1
        finally:
            torch._dynamo.reset()


def test_a_reference_that_looks_at_its_data_is_told_and_not_raised():
    source = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.limit = torch.rand(3).max().item()

    def forward(self, x):
        return x + self.limit

def get_inputs():
    return [torch.rand(8)]

def get_init_inputs():
    return []
"""
    problem = Problem(name="looks_at_data", source=source)
    assert "DataDependent" in compile_ahead(problem, "cpu")


@pytest.mark.slow
def test_getting_ready_ends_where_nothing_can_be_compiled_ahead():
    here = Environment(torch=torch.__version__, gpu="none that exists")
    baselines, problem = Baselines("cuda:99"), problem_of("vector_add")
    try:
        threads = [
            threading.Thread(target=baselines.get_ready, args=(problem, here)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
    finally:
        baselines.close()
    assert baselines.timed(problem, here).compiled is None

"""Evaluators of two GPUs in one process, asked from threads: torch has a current device for each thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bench.suite import Entry, honest, problem_of
from tools.pipeline import Evaluator, Options
from tools.results import Report

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


def test_each_gpu_judges_what_it_is_given():
    entries = honest(["vector_add", "fused_softmax", "batched_matmul"])
    with Evaluator("cuda:0") as zero, Evaluator("cuda:1") as one, ThreadPoolExecutor(4) as threads:

        def judged(entry: Entry) -> list[Report]:
            problem = problem_of(entry.problem)
            return [e.evaluate(problem, entry.source, Options(torch_compile=False)) for e in (zero, one)]

        reports = [report for pair in threads.map(judged, entries) for report in pair]
    assert len(reports) == 6
    assert all(report.correct for report in reports), [report.failure for report in reports]

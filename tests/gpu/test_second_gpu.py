"""Evaluators of two GPUs in one process, asked from threads: torch has a current device for each thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bench.judge_suites import Entry, honest, problem_of
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.report import Report

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.device_count() < 2, reason="needs two GPUs"
    ),
]


def test_each_gpu_judges_what_it_is_given():
    entries = honest(["vector_add", "fused_softmax", "batched_matmul"])
    with Evaluator("cuda:0") as zero, Evaluator("cuda:1") as one, ThreadPoolExecutor(4) as threads:

        def judged(entry: Entry) -> list[Report]:
            problem = problem_of(entry.problem)
            return [
                e.evaluate(problem, entry.source, Options(torch_compile=False)) for e in (zero, one)
            ]

        reports = [report for pair in threads.map(judged, entries) for report in pair]
    assert len(reports) == 6
    assert all(report.correct for report in reports), [report.failure for report in reports]


def test_a_graph_is_captured_on_the_gpu_of_its_model(tmp_path):
    """torch keeps one stream for all captures, of the GPU that captured first: the second's graph was empty there
    too.
    """
    from kernelwright.policies.local.stepping import CacheKind
    from kernelwright.policies.local.transformers_policy import TransformersPolicy
    from tests.policies.local.test_in_process_policy import requests
    from tests.tiny_model import save_tiny_model

    tiny = str(save_tiny_model(tmp_path / "model"))
    for gpu in ("cuda:0", "cuda:1"):
        growing, captured = (
            TransformersPolicy(tiny, device=gpu, dtype="float32", cache=kind).sample(requests(16))
            for kind in (CacheKind.GROWING, CacheKind.STATIC)
        )
        assert (
            sum(
                one.token_ids == other.token_ids
                for one, other in zip(growing, captured, strict=True)
            )
            >= 15
        ), gpu


def test_a_policy_of_the_second_gpu_answers_from_any_thread(tmp_path):
    """On the first GPU's stream its graph was captured empty: replayed for ever, and no row ever ended."""
    from kernelwright.policies.local.in_process_policy import InProcessPolicy
    from kernelwright.policies.local.transformers_policy import TransformersPolicy
    from tests.policies.local.test_in_process_policy import requests
    from tests.tiny_model import save_tiny_model

    tiny = str(save_tiny_model(tmp_path / "model"))
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(
            InProcessPolicy(tiny, device="cuda:1", dtype="float32", places=16).sample, requests(64)
        )
        found = running.result(120)
    plain = TransformersPolicy(tiny, device="cuda:1", dtype="float32").sample(requests(64))
    assert (
        sum(one.token_ids == other.token_ids for one, other in zip(found, plain, strict=True)) >= 60
    )

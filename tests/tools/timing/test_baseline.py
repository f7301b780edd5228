"""torch.compile's time: one process for all problems, each asked once."""

from __future__ import annotations

import threading

import pytest
import torch

from bench.judge_suites import problem_of
from kernelwright.tools.report import Environment
from kernelwright.tools.timing.baseline import Baselines

HERE = Environment(torch=torch.__version__, gpu="the one of this test")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder in which `baselines` keeps what it measured."""
    return tmp_path_factory.mktemp("baselines")


@pytest.fixture(scope="module")
def baselines(kept):
    """One process for both tests without a GPU: to start it takes five seconds of a core."""
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    made = Baselines("cuda:0", kept)
    made.start()
    yield made
    made.close()


@pytest.mark.slow
def test_without_a_gpu_the_note_says_why_and_is_kept(baselines, kept):
    found = baselines.timed(problem_of("vector_add"), HERE)
    assert found.compiled is None
    assert found.note.startswith("torch.compile failed: ")
    assert found.ratio is None
    assert baselines.timed(problem_of("vector_add"), HERE) is found
    assert not list(kept.rglob("*.json"))


@pytest.mark.slow
def test_a_problem_is_compiled_once_however_many_ask(baselines):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(baselines.timed(problem_of("fused_silu"), HERE)))
        for _ in range(3)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert found[0] is found[1] is found[2]


def test_whoever_waits_is_told_when_it_is_closed():
    baselines, found = Baselines("cuda:0"), []
    baselines.start()
    waiting = threading.Thread(
        target=lambda: found.append(baselines.timed(problem_of("vector_add"), HERE))
    )
    waiting.start()
    baselines.close()
    waiting.join(60)
    assert found[0].note.startswith("torch.compile ")


@pytest.mark.gpu
def test_one_process_times_one_problem_after_another(tmp_path):
    baselines = Baselines("cuda:0", tmp_path)
    try:
        found = [
            baselines.timed(problem_of(name), HERE) for name in ("fused_softmax", "layer_norm")
        ]
    finally:
        baselines.close()
    for one in found:
        assert not one.note
        assert 0.2 < one.ratio < 5
    assert Baselines("cuda:0", tmp_path).timed(problem_of("fused_softmax"), HERE) == found[0]

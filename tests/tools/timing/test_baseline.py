"""torch.compile's time: compiled while the GPU serves others, timed alone, asked once for each problem."""

from __future__ import annotations

import threading

import pytest
import torch

from bench.suite import problem_of
from kernelwright.tools.report import Environment
from kernelwright.tools.timing.baseline import Baselines

HERE = Environment(torch=torch.__version__, gpu="the one of this test")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
@pytest.mark.parametrize("ahead", [True, False])
def test_without_a_gpu_the_note_says_why_and_is_kept(tmp_path, ahead):
    baselines = Baselines("cuda:0", tmp_path)
    with baselines.compiled(problem_of("vector_add"), HERE, ahead) as timed:
        found = timed()
    assert found.compiled is None
    assert found.note.startswith("torch.compile failed: ")
    with baselines.compiled(problem_of("vector_add"), HERE) as timed:
        assert timed() is found
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_problem_is_compiled_once_however_many_ask():
    baselines, found = Baselines("cuda:0"), []

    def ask():
        with baselines.compiled(problem_of("vector_add"), HERE) as timed:
            found.append(timed())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert found[0] is found[1] is found[2]


@pytest.mark.gpu
def test_what_waits_has_compiled_and_is_timed_when_it_is_asked(tmp_path):
    baselines = Baselines("cuda:0", tmp_path)
    with baselines.compiled(problem_of("fused_softmax"), HERE) as timed:
        found = timed()
    assert not found.note
    assert found.compiled is not None
    assert found.eager is not None
    assert 0.2 < found.ratio < 5
    with Baselines("cuda:0", tmp_path).compiled(problem_of("fused_softmax"), HERE) as timed:
        assert timed() == found

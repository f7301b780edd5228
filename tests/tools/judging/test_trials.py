"""What a tuner's trials stand on, as far as it needs no GPU."""

import threading
from pathlib import Path

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.judging.trials import CompiledTexts
from kernelwright.tools.options import Lane, Options

GOOD = Path(__file__).parents[2] / "kernels" / "good"


def test_a_thread_that_never_judged_may_enter_a_lane(evaluator):
    """A tuner's first trial comes before any verdict of its thread."""
    entered = []

    def enter():
        with evaluator._turns.at(Lane.CPU, 600.0, entered.append):
            entered.append("inside")

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == ["inside"]


def test_a_text_is_traced_and_compiled_once(evaluator):
    texts, problem = CompiledTexts(), find_by_name("vector add")
    source = (GOOD / "vector_add.py").read_text(encoding="utf-8")
    first = texts.get(evaluator.front(), problem, source, "sm_90", Options())
    assert not first.failure
    assert texts.get(evaluator.front(), problem, source, "sm_90", Options()) is first


def test_one_configuration_of_an_autotune_list_that_does_not_compile_is_left_out(evaluator):
    """As Triton leaves it out: the others can still be timed."""
    source = (GOOD / "matmul_autotune.py").read_text(encoding="utf-8")
    listed = (
        'triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 16}, num_warps=4, num_stages=3)'
    )
    assert listed in source
    broken = source.replace(listed, listed.replace('"BLOCK_K": 16', '"BLOCK_K": 24'))
    text = CompiledTexts().get(
        evaluator.front(), find_by_name("matmul"), broken, "sm_90", Options()
    )
    assert not text.failure
    assert any(one.failure is not None for one in text.binaries.values())


def test_what_does_not_compile_is_told_in_one_line(evaluator):
    source = (
        (GOOD / "vector_add.py").read_text(encoding="utf-8").replace("BLOCK=1024", "BLOCK=1000")
    )
    text = CompiledTexts().get(
        evaluator.front(), find_by_name("vector add"), source, "sm_90", Options()
    )
    assert text.failure
    assert "\n" not in text.failure

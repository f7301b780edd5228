"""What compiling alone says of a configuration."""

import ast
from pathlib import Path

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.tuning.compile_scores import score_by_compiling
from kernelwright.tools.tuning.instruction_counts import count_instructions
from kernelwright.tools.tuning.kernel_text.reading import read_file
from kernelwright.tools.tuning.kernel_text.rewriting import rewrite
from kernelwright.tools.tuning.launch_facts import TracedLaunchFacts
from kernelwright.tools.tuning.loop_trips import trips_of

MATMUL = (Path(__file__).parents[2] / "kernels" / "good" / "matmul.py").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def scored(front, tracing):
    file, problem = read_file(MATMUL), find_by_name("matmul")

    def of(**values):
        text = rewrite(
            file.source,
            file.space,
            {f"matmul_kernel.{name}": value for name, value in values.items()},
        )
        return score_by_compiling(
            text, tracing(problem), lambda traced, one: front.compiled_at_own_size(
                traced, "sm_90", one, Options(), texts=("ptx",)
            ),
            "sm_90",
        )  # fmt: skip

    return of


def test_the_same_text_has_the_same_score(scored):
    assert scored() == scored()
    assert scored().passed
    assert scored().kernels[0].registers


def test_split_products_use_tensor_cores_and_rank_before_fp32(scored):
    plain, split = scored(), scored(input_precision="bf16x3")
    assert split.kernels[0].tensor_core == "wgmma"
    assert plain.kernels[0].tensor_core == ""
    assert split.cycles < plain.cycles


@pytest.mark.slow
def test_a_configuration_over_the_shared_memory_fails_with_the_compilers_words(scored):
    found = scored(BLOCK_M=128, BLOCK_N=128, BLOCK_K=128, num_stages=4, input_precision="bf16x3")
    assert "shared memory" in found.failure
    assert found.cycles is None


def test_loops_are_counted_as_often_as_they_run():
    kernel = ast.parse(
        "def k(x, n, BLOCK):\n"
        "    last = tl.cdiv(n, BLOCK) * BLOCK\n"
        "    for i in range(0, last, BLOCK):\n        pass\n"
        "    for i in tl.static_range(4):\n        pass\n"
        "    for i in range(tl.program_id(0), 64, tl.num_programs(0)):\n        pass\n"
    ).body[0]
    launch = TracedLaunchFacts(
        function="k", kernel="", grid=(8, 1, 1), numbers={"n": 1000, "BLOCK": 128}
    )
    assert trips_of(kernel, launch) == [8.0, 8.0]


def test_instructions_of_a_loop_are_weighted_and_products_counted():
    ptx = """
    ld.global.v4.b32 {%r1}, [%rd1];
    $L__BB0_1:
    wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%f1}, %rd2, %rd3;
    cp.async.cg.shared.global [ %r2 + 0 ], [ %rd4 + 0 ], 0x10, %r3;
    ex2.approx.f32 %f2, %f3;
    @%p1 bra $L__BB0_1;
    st.global.b32 [%rd5], {%r4};
    """
    counts = count_instructions(ptx, [10.0])
    assert counts.operations == 10 * 2 * 64 * 128 * 16 / 128
    assert counts.bytes == 16 + 10 * 16 + 4
    assert counts.issued == 1 + 10 * (1 + 1 + 4) + 1
    assert counts.iterations == 10

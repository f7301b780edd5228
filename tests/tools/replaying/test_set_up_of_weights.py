"""What a candidate makes of its weights while it is set up follows the weights that the judge loads."""

from __future__ import annotations

import pytest
import torch

from kernelwright.tools.trace.trace import Trace

TWICE = """
def twice(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
"""


@pytest.fixture
def twice(write):
    return write.kernel(TWICE, {"x": "*fp32", "y": "*fp32", "n": "i32"}, BLOCK=32)


# ------------------------------------------------------------------ set-up
def packing(write, twice):
    """Weight 5 was made by `empty` and filled by `uniform_`; 6 is its transpose, packed by torch, 7 twice that, packed
    by a kernel.
    """
    setup = (
        write.empty(5, 4, 8),
        write.op("uniform_", write.t(5), -1.0, 1.0, out=5),
        write.op("t", write.t(5), out=9),
        write.op("clone", write.t(9), memory_format={"memory_format": "contiguous_format"}, out=6),
        write.empty(7, 8, 4),
        write.launch("twice", 1, x=write.t(6), y=write.t(7), n=32),
    )
    return Trace(
        inputs=(write.t(0),), state={"w": 5}, shapes={"w": (4, 8)}, dtypes={"w": "float32"}, setup=setup,
        first=(write.op("mm", write.t(0), write.t(7), out=1),), first_outputs=write.t(1),
    )  # fmt: skip


def test_packed_weights_follow_the_weights_that_the_judge_loads(bench, write, twice):
    w, x = torch.randn(4, 8), torch.randn(3, 8)
    weights = bench.open(write.traced(packing(write, twice), twice), {"w": w})
    bench.call([x], [torch.zeros(3, 4)])
    assert torch.allclose(bench.got[0], x @ (2 * w.t()), atol=1e-5)
    assert torch.equal(weights["w"].tensor, w), "the set-up did not initialise it"
    weights["w"].tensor.mul_(-3)
    bench.again()
    assert torch.allclose(bench.got[0], x @ (2 * w.t()), atol=1e-5), (
        "the set-up has not run again yet"
    )
    assert bench.replayer.set_up() > 0
    bench.again()
    assert torch.allclose(bench.got[0], x @ (-6 * w.t()), atol=1e-5)


def test_a_set_up_that_no_call_uses_is_not_run(bench, write):
    setup = (write.empty(5, 1 << 40), write.op("uniform_", write.t(5), out=5))
    steps = (write.op("mul.Tensor", write.t(0), write.t(5), out=1),)
    trace = Trace(
        inputs=(write.t(0),), state={"w": 5}, setup=setup, first=steps, first_outputs=write.t(1)
    )
    bench.open(write.traced(trace), {"w": torch.full((2,), 7.0)})
    bench.call([torch.ones(2)], [torch.zeros(2)])
    assert bench.got[0].tolist() == [7.0, 7.0]
    assert bench.replayer.set_up() == 0.0


def test_random_numbers_of_the_set_up_are_the_references_and_weights_are_left_alone(bench, write):
    """A weight is drawn first, then noise that is no weight: the generator has to have moved on."""
    setup = (
        write.empty(5, 100),
        write.op("normal_", write.t(5), out=5),
        write.op("fill_.Scalar", write.t(5), 1.0, out=5),
        write.op("randn", [4], device={"device": "cuda"}, out=6),
    )
    steps = (write.op("add.Tensor", write.t(6), write.t(0), out=1),)
    trace = Trace(
        inputs=(write.t(0),),
        state={"w": 5},
        setup=setup,
        first=steps,
        first_outputs=[write.t(1), write.t(5)],
    )
    w = torch.randn(100)
    bench.open(write.traced(trace), {"w": w}, seed=11)
    reply = bench.call([torch.zeros(4)], [torch.zeros(4), w])
    generator = torch.Generator().manual_seed(11)
    torch.empty(100).normal_(generator=generator)
    assert torch.equal(bench.got[0], torch.randn(4, generator=generator))
    assert torch.equal(bench.got[1], w)
    assert reply.aliases[1].state == "w"


def test_a_weight_that_lies_in_a_larger_tensor_is_the_judges_there_too(bench, write):
    setup = (
        write.empty(4, 10),
        write.op("slice.Tensor", write.t(4), 0, 2, 5, out=5),
        write.op("zero_", write.t(4), out=4),
    )
    steps = (write.op("mul.Scalar", write.t(4), 1.0, out=1),)
    trace = Trace(
        inputs=(write.t(0),), state={"w": 5}, setup=setup, first=steps, first_outputs=write.t(1)
    )
    w = torch.randn(3)
    bench.open(write.traced(trace), {"w": w})
    bench.call([torch.zeros(1)], [torch.zeros(10)])
    assert torch.equal(bench.got[0][2:5], w)


def test_a_kernel_of_the_set_up_does_not_write_the_judges_weights(bench, write, twice):
    setup = (write.empty(5, 8), write.empty(6, 8), write.launch("twice", 1, x=write.t(5), y=write.t(5), n=8),
             write.launch("twice", 1, x=write.t(5), y=write.t(6), n=8))  # fmt: skip
    trace = Trace(
        inputs=(write.t(0),),
        state={"w": 5},
        setup=setup,
        first=(write.op("neg", write.t(6), out=1),),
        first_outputs=write.t(1),
    )
    w = torch.randn(8)
    weights = bench.open(write.traced(trace, twice), {"w": w})
    bench.call([torch.zeros(1)], [w])
    assert torch.equal(weights["w"].tensor, w)
    assert torch.equal(bench.got[0], -2 * w)


def test_a_weight_that_the_candidate_keeps_transposed_lies_as_its_strides_say(bench, write):
    """The kernel is handed the strides of the traced weight as numbers."""
    text = """
    def columns(w, y, rows, stride, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        for r in range(rows):
            v = tl.load(w + r + i * stride)
            tl.store(y + r * BLOCK + i, v)
            tl.store(w + r + i * stride, v + 1)
    """
    kernel = write.kernel(
        text, {"w": "*fp32", "y": "*fp32", "rows": "i32", "stride": "i32"}, BLOCK=8
    )
    setup = (
        write.op("randn", [8, 4], device={"device": "cuda"}, out=4),
        write.op("t", write.t(4), out=5),
        write.op("detach", write.t(5), out=5),
    )
    steps = (
        write.empty(1, 4, 8),
        write.launch("columns", 1, w=write.t(5), y=write.t(1), rows=4, stride=4),
    )
    trace = Trace(
        inputs=(write.t(0),),
        state={"w": 5},
        setup=setup,
        first=steps,
        first_outputs=[write.t(1), write.t(5)],
    )
    w = torch.randn(4, 8)
    weights = bench.open(write.traced(trace, kernel), {"w": w})
    reply = bench.call([torch.zeros(1)], [w, w])
    assert torch.equal(bench.got[0], w)
    assert torch.equal(weights["w"].tensor, w + 1), (
        "what a call changes is changed in the judge's memory"
    )
    assert reply.aliases[1].state == "w"

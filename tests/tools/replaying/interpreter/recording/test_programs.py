"""Programs that are replayed from the record of another: in every respect as if each had been interpreted.

Each test launches often enough, and with enough programs, for the record to be used.
"""

from __future__ import annotations

import pytest
import torch

from kernelwright.tools.replaying.interpreter.recording.operations import PURE, is_pure
from kernelwright.tools.report import Failed, Fault
from kernelwright.tools.trace.trace import Trace

POINTERS = {"x": "*fp32", "y": "*fp32"}
COUNTED = POINTERS | {"n": "i32"}


def launched(write, kernel, grid, shape, **args):
    steps = (
        write.empty(1, *shape),
        write.launch(kernel[0].name, grid, x=write.t(0), y=write.t(1), **args),
    )
    return write.traced(Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(1)), kernel)


def test_programs_and_calls_on_other_data_follow_the_data(bench, write):
    text = """
    def norm(x, y, n, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        i = tl.arange(0, BLOCK)
        a = tl.load(x + row * n + i, mask=i < n, other=0.0)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n, 16):
            total += tl.load(x + row * n + start + i, mask=(i < 16) & (start + i < n), other=0.0)
        tl.store(y + row * n + i, (a - tl.max(a, axis=0)) / (1.0 + tl.sum(tl.abs(total), axis=0)), mask=i < n)
    """
    bench.open(launched(write, write.kernel(text, COUNTED, BLOCK=64), 9, (9, 40), n=40))
    for seed in range(4):
        x = torch.randn(9, 40, generator=torch.Generator().manual_seed(seed))
        bench.call([x], [x], shuffle=seed)
        top = x.clamp(min=0).amax(1, keepdim=True)  # the masked lanes are zero
        parts = (
            torch.nn.functional.pad(x, (0, 8)).reshape(9, 3, 16).sum(1).abs().sum(1, keepdim=True)
        )
        torch.testing.assert_close(bench.got[0], (x - top) / (1.0 + parts))


def test_a_program_that_decides_by_what_it_has_read_takes_its_own_way(bench, write):
    text = """
    def choose(x, y, n):
        i = tl.program_id(0)
        a = tl.load(x + i)
        if a > 2.0:
            tl.store(y + i, a * 10.0)
        elif a < -2.0:
            tl.store(y + i, -a)
        else:
            steps = a.to(tl.int32)
            total = 0.0
            for k in range(0, steps + 3):
                total += k * 1.0
            tl.store(y + i, total)
    """
    bench.open(launched(write, write.kernel(text, COUNTED), 64, (64,), n=64))
    for seed in range(3):
        x = torch.randn(64, generator=torch.Generator().manual_seed(seed)) * 3
        bench.call([x], [x], shuffle=seed)
        steps = x.to(torch.int32) + 3
        within = steps * (steps - 1) / 2.0
        wanted = torch.where(x > 2, x * 10, torch.where(x < -2, -x, within))
        torch.testing.assert_close(bench.got[0], wanted)


def test_the_last_of_many_programs_writes_outside_and_the_line_is_its_own(bench, write):
    text = """
    def copy(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(x + i, mask=i < n)
        tl.store(y + i, a)
    """
    kernel = write.kernel(text, COUNTED, BLOCK=16)
    bench.open(launched(write, kernel, 8, (100,), n=100))
    for seed in range(6):
        with pytest.raises(Failed) as caught:
            bench.call([torch.zeros(100)], [torch.zeros(100)], shuffle=seed)
        assert caught.value.failure.fault is Fault.OUT_OF_BOUNDS
        assert caught.value.failure.where.text.strip() == "tl.store(y + i, a)"


def test_a_race_is_seen_among_replayed_programs(bench, write):
    text = """
    def add(x, y, n):
        i = tl.program_id(0)
        tl.store(y, tl.load(y) + tl.load(x + i))
    """
    bench.open(launched(write, write.kernel(text, COUNTED), 16, (1,), n=16))
    results = set()
    for seed in range(8):
        bench.call([torch.ones(16)], [torch.zeros(1)], shuffle=seed, poison=0)
        results.add(float(bench.got[0]))
    assert len(results) > 1


def test_numbers_of_the_launch_are_no_part_of_the_record(bench, write):
    text = """
    def scale(x, y, n, factor):
        i = tl.program_id(0)
        tl.store(y + i, tl.load(x + i) * factor)
    """
    kernel = write.kernel(text, COUNTED | {"factor": "fp32"})
    steps = [write.empty(1, 8), write.empty(2, 8)]
    for number, factor in ((1, 2.0), (2, 3.0)):
        steps.append(write.launch("scale", 8, x=write.t(0), y=write.t(number), n=8, factor=factor))
    outputs = {"tuple": [write.t(1), write.t(2)]}
    bench.open(
        write.traced(Trace(inputs=(write.t(0),), first=tuple(steps), first_outputs=outputs), kernel)
    )
    x = torch.randn(8)
    for _ in range(2):
        bench.call([x], [x, x])
        assert torch.equal(bench.got[0], x * 2)
        assert torch.equal(bench.got[1], x * 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32])
def test_every_type_is_computed_as_it_is_interpreted(bench, write, dtype):
    name = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.int32: "i32"}[dtype]
    text = """
    def mix(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(x + i, mask=i < n, other=0)
        tl.store(y + i, (a + a * a).to(y.dtype.element_ty), mask=i < n)
    """
    kernel = write.kernel(text, {"x": f"*{name}", "y": f"*{name}", "n": "i32"}, BLOCK=16)
    steps = (
        write.empty(1, 50, dtype=str(dtype).removeprefix("torch.")),
        write.launch("mix", 4, x=write.t(0), y=write.t(1), n=50),
    )
    bench.open(
        write.traced(Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(1)), kernel)
    )
    for seed in range(3):
        x = torch.zeros(50, dtype=dtype) if seed == 0 else torch.arange(-25, 25).to(dtype)
        bench.call([x], [x], shuffle=seed)
        assert torch.equal(bench.got[0], x + x * x)


@pytest.mark.parametrize(
    "name", ["create_masked_load", "create_store", "create_atomic_rmw", "create_atomic_cas", "create_get_program_id",
             "create_print", "create_assert", "create_descriptor_load", "reduce"]
)  # fmt: skip
def test_what_touches_memory_or_knows_its_program_is_never_taken_for_a_constant(name):
    assert not is_pure(name)
    assert name not in PURE


def test_an_operation_with_several_results_is_replayed(bench, write):
    text = """
    def swap(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
        first, second = tl.split(tl.reshape(tl.load(x + i), (BLOCK, 2)))
        square = tl.join(second, first)
        tl.store(y + i, tl.reshape(square.T.T, (2 * BLOCK,)))
    """
    bench.open(launched(write, write.kernel(text, COUNTED, BLOCK=8), 5, (80,), n=80))
    for seed in range(3):
        x = torch.randn(80, generator=torch.Generator().manual_seed(seed))
        bench.call([x], [x], shuffle=seed)
        assert torch.equal(bench.got[0], x.reshape(40, 2).flip(1).reshape(-1))


def test_a_place_that_was_found_decides_in_every_program_anew(bench, write):
    text = """
    def first(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0)
        pair = tl.load(x + i * BLOCK + tl.arange(0, BLOCK))
        top, place = tl.max(pair, axis=0, return_indices=True)
        if place == 0:
            tl.store(y + i, top)
        else:
            tl.store(y + i, -top)
    """
    bench.open(launched(write, write.kernel(text, COUNTED, BLOCK=4), 8, (8,), n=8))
    for seed in range(4):
        x = torch.randn(32, generator=torch.Generator().manual_seed(seed))
        bench.call([x], [x[:8]], shuffle=seed)
        top, place = x.reshape(8, 4).max(1)
        assert torch.equal(bench.got[0], torch.where(place == 0, top, -top))

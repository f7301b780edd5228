"""Kernels under the interpreter: what they compute, what they reach for, and what their programs see of each other."""

from __future__ import annotations

import pytest
import torch

from kernelwright.tools.replaying.interpreter.needs_gpu import NeedsGpu
from kernelwright.tools.report import Failed, Fault
from kernelwright.tools.trace.trace import Trace

COPY = """
def copy(x, y, n, reach, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n + reach), mask=i < n)
"""
POINTERS = {"x": "*fp32", "y": "*fp32"}


def one_launch(write, kernel, grid, shape, **args):
    """x of `shape` is input 0; y, tensor 1, is what the launch writes and forward returns."""
    steps = (
        write.empty(1, *shape),
        write.launch(kernel[0].name, grid, x=write.t(0), y=write.t(1), **args),
    )
    trace = Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(1))
    return write.traced(trace, kernel)


def test_a_kernel_computes_what_it_says(bench, write):
    kernel = write.kernel(COPY, POINTERS | {"n": "i32", "reach": "i32"}, BLOCK=16)
    x = torch.randn(100)
    bench.open(one_launch(write, kernel, 7, (100,), n=100, reach=0))
    reply = bench.call([x], [x])
    assert torch.equal(bench.got[0], x)
    assert reply.count == 1
    assert reply.copied == (True,)
    assert reply.outputs[0].shape == (100,)
    assert reply.aliases == (None,)
    assert (reply.written_outside, reply.read_outside) == ("", "")


@pytest.mark.parametrize("poison", [0xFF, 0x4B])
def test_what_a_kernel_leaves_unwritten_is_poison_at_every_call(bench, write, poison):
    kernel = write.kernel(COPY, POINTERS | {"n": "i32", "reach": "i32"}, BLOCK=16)
    x = torch.randn(100)
    bench.open(one_launch(write, kernel, 5, (100,), n=100, reach=0))
    for _ in range(2):
        bench.call([x], [x], poison=poison)
        assert torch.equal(bench.got[0][:80], x[:80])
        assert (bench.got[0][80:].view(torch.uint8) == poison).all()


def test_without_its_launches_a_trace_gives_poison(bench, write):
    kernel = write.kernel(COPY, POINTERS | {"n": "i32", "reach": "i32"}, BLOCK=16)
    x = torch.randn(100)
    bench.open(one_launch(write, kernel, 7, (100,), n=100, reach=0))
    bench.call([x], [x], launches=False)
    assert bench.got[0].isnan().all()


def test_a_read_past_a_tensor_finds_poison_and_is_noted(bench, write):
    text = """
    def tail(x, y, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + n - 8 + i))
    """
    kernel = write.kernel(text, POINTERS | {"n": "i32"}, BLOCK=16)
    x = torch.randn(64)
    bench.open(one_launch(write, kernel, 1, (16,), n=64))
    reply = bench.call([x], [x[:16]])
    assert torch.equal(bench.got[0][:8], x[56:])
    assert bench.got[0][8:].isnan().all()
    assert (
        reply.read_outside
        == "tail reads outside of its tensors, 0 bytes past the end of a tensor of 256 bytes"
    )


def test_lanes_that_are_masked_may_point_anywhere(bench, write):
    kernel = write.kernel(COPY, POINTERS | {"n": "i32", "reach": "i32"}, BLOCK=1024)
    x = torch.randn(3)
    bench.open(one_launch(write, kernel, 1, (3,), n=3, reach=0))
    assert bench.call([x], [x]).read_outside == ""
    assert torch.equal(bench.got[0], x)


def test_a_write_past_a_tensor_ends_the_call(bench, write):
    text = """
    def over(x, y, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, mask=i < n))
    """
    kernel = write.kernel(text, POINTERS | {"n": "i32"}, BLOCK=128)
    x = torch.randn(100)
    bench.open(one_launch(write, kernel, 1, (100,), n=100))
    with pytest.raises(Failed) as caught:
        bench.call([x], [x])
    assert caught.value.failure.fault is Fault.OUT_OF_BOUNDS
    assert (
        "over writes outside of its tensors, 0 bytes past the end of a tensor of 400 bytes"
        in caught.value.failure.message
    )
    assert caught.value.failure.where.line == 3, "the line of the store in the candidate's file"


@pytest.mark.parametrize(
    "statement",
    [
        "tl.store(y + 1000000000 + i, 0.0)",
        "tl.store((i.to(tl.int64) * 0 + 4096).to(tl.pointer_type(tl.float32)), 0.0)",
        "tl.store(y + i, tl.load(x - 100000000 + i))",
        "tl.store(y + i, tl.load((i.to(tl.int64) * 8).to(tl.pointer_type(tl.float32))))",
        "tl.atomic_add(y - 200 + i, 1.0)",
        "tl.atomic_cas(y.to(tl.pointer_type(tl.int32)) + 1000000000, 0, 1)",
    ],
)
def test_a_wild_pointer_touches_nothing(bench, write, statement):
    text = f"""
    def wild(x, y, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        {statement}
    """
    kernel = write.kernel(text, POINTERS, BLOCK=16)
    x = torch.randn(16)
    for grid in (1, 3):
        bench.open(one_launch(write, kernel, grid, (16,)))
        with pytest.raises(Failed) as caught:
            bench.call([x], [x])
        assert caught.value.failure.fault is Fault.OUT_OF_BOUNDS


def test_a_tensor_that_the_host_has_dropped_is_out_of_bounds(bench, write):
    """The first tensor is used no more when the second kernel runs, and the kernel knows where it was."""
    text = """
    def keep_address(x, y, BLOCK: tl.constexpr):
        tl.store(y.to(tl.pointer_type(tl.int64)), x.to(tl.int64))
    """
    other = """
    def use_address(x, y, BLOCK: tl.constexpr):
        where = tl.load(x.to(tl.pointer_type(tl.int64))).to(tl.pointer_type(tl.float32))
        tl.store(y, tl.load(where))
    """
    first, second = (write.kernel(t, POINTERS, BLOCK=1) for t in (text, other))
    steps = (
        write.empty(1, 64), write.empty(2, 4), write.launch("keep_address", 1, x=write.t(1), y=write.t(2)),
        write.empty(3, 1), write.launch("use_address", 1, x=write.t(2), y=write.t(3)),
    )  # fmt: skip
    bench.open(
        write.traced(
            Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(3)), first, second
        )
    )
    with pytest.raises(Failed) as caught:
        bench.call([torch.zeros(1)], [torch.zeros(1)])
    assert caught.value.failure.fault is Fault.OUT_OF_BOUNDS


# ------------------------------------------------------------------ programs
def outcomes(bench, x, like, calls=12):
    """What one call gives, at several seeds."""
    bench.call([x], [like], shuffle=0)
    found = [bench.got[0].clone()]
    for seed in range(1, calls):
        bench.again(shuffle=seed)
        found.append(bench.got[0].clone())
    return found


SUM_HEAD = """
def add_up(x, y, n, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    i = p * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0)
"""


def sum_of(write, body, grid=8, scratch=0):
    """Tensor 1 is a row of zeros: the sum, and whatever else the kernel keeps there."""
    text = SUM_HEAD + "\n".join("    " + line for line in body.strip().splitlines())
    kernel = write.kernel(text, POINTERS | {"n": "i32"}, BLOCK=16)
    where = {"dtype": {"dtype": "float32"}, "device": {"device": "cuda"}}
    steps = (
        write.op("zeros", [1 + scratch], out=1, **where),
        write.launch("add_up", grid, x=write.t(0), y=write.t(1), n=16 * grid),
        write.op("slice.Tensor", write.t(1), 0, 0, 1, out=2),
    )
    return write.traced(Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(2)), kernel)


def test_programs_that_add_to_one_element_without_atomics_are_a_race(bench, write):
    x = torch.ones(128)
    bench.open(sum_of(write, "tl.store(y, tl.load(y) + part)"))
    found = outcomes(bench, x, torch.zeros(1))
    assert sum(float(one) == 128.0 for one in found) <= 2
    assert len({float(one) for one in found}) > 1


def test_atomics_that_order_nothing_do_not_hide_a_race(bench, write):
    """Each program asks for an atomic operation before and after, and the addition between them is as unordered as
    ever.
    """
    x = torch.ones(128)
    body = "tl.atomic_add(y + 1, 0.0)\nold = tl.load(y)\ntl.store(y, old + part)\ntl.atomic_add(y + 1, 0.0)"
    bench.open(sum_of(write, body, scratch=1))
    found = outcomes(bench, x, torch.zeros(1))
    assert sum(float(one) == 128.0 for one in found) <= 4


def test_atomic_additions_are_right_at_every_seed(bench, write):
    x = torch.arange(128.0)
    bench.open(sum_of(write, "tl.atomic_add(y, part)"))
    assert all(float(one) == float(x.sum()) for one in outcomes(bench, x, torch.zeros(1), 4))


def test_a_lock_of_atomics_is_right_at_every_seed(bench, write):
    x = torch.arange(128.0)
    body = """
lock = (y + 1).to(tl.pointer_type(tl.int32))
while tl.atomic_cas(lock, 0, 1) == 1:
    pass
tl.store(y, tl.load(y) + part)
tl.atomic_xchg(lock, 0)
"""
    bench.open(sum_of(write, body, scratch=1))
    assert all(float(one) == float(x.sum()) for one in outcomes(bench, x, torch.zeros(1), 6))


def test_the_last_program_may_add_up_what_the_others_left(bench, write):
    x = torch.arange(128.0)
    body = """
tl.store(y + 2 + p, part)
done = tl.atomic_add((y + 1).to(tl.pointer_type(tl.int32)), 1)
if done == tl.num_programs(0) - 1:
    parts = tl.load(y + 2 + tl.arange(0, 8))
    tl.store(y, tl.sum(parts, axis=0))
"""
    bench.open(sum_of(write, body, scratch=9))
    assert all(float(one) == float(x.sum()) for one in outcomes(bench, x, torch.zeros(1), 6))


def test_a_program_that_waits_for_another_gets_its_turn(bench, write):
    """A chained sum: each program spins until the one before it has passed its total on."""
    x = torch.arange(128.0)
    body = """
flags = (y + 10).to(tl.pointer_type(tl.int32))
if p > 0:
    while tl.atomic_add(flags + p - 1, 0) == 0:
        pass
    part += tl.load(y + p)
tl.store(y + p + 1, part)
tl.atomic_xchg(flags + p, 1)
if p == tl.num_programs(0) - 1:
    tl.store(y, part)
"""
    bench.open(sum_of(write, body, scratch=20))
    assert all(float(one) == float(x.sum()) for one in outcomes(bench, x, torch.zeros(1), 4))


def test_a_stencil_in_place_that_reads_its_neighbours_is_a_race(bench, write):
    text = """
    def smooth(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        left = tl.load(x + i - 1, mask=(i > 0) & (i < n), other=0.0)
        tl.store(x + i, tl.load(x + i, mask=i < n) + left, mask=i < n)
    """
    kernel = write.kernel(text, POINTERS | {"n": "i32"}, BLOCK=16)
    steps = (
        write.op("clone", write.t(0), out=1),
        write.launch("smooth", 8, x=write.t(1), y=write.t(1), n=128),
    )
    bench.open(
        write.traced(Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(1)), kernel)
    )
    x = torch.randn(128)
    right = x + torch.cat([torch.zeros(1), x[:-1]])
    found = outcomes(bench, x, x)
    assert sum(torch.equal(one, right) for one in found) <= 2


def test_a_kernel_in_place_over_its_own_elements_is_none(bench, write):
    text = """
    def double(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        for _ in range(2):
            tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
    """
    kernel = write.kernel(text, POINTERS | {"n": "i32"}, BLOCK=16)
    steps = (
        write.op("clone", write.t(0), out=1),
        write.launch("double", 8, x=write.t(1), y=write.t(1), n=120),
    )
    bench.open(
        write.traced(Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(1)), kernel)
    )
    x = torch.randn(120)
    assert all(torch.equal(one, 4 * x) for one in outcomes(bench, x, x, 4))


def test_which_of_two_writes_comes_last_depends_on_the_seed(bench, write):
    bench.open(sum_of(write, "tl.store(y, p.to(tl.float32))"))
    assert len({float(one) for one in outcomes(bench, torch.ones(128), torch.zeros(1))}) > 3


# ------------------------------------------------------------------ what only a GPU does
@pytest.mark.parametrize(
    "expression",
    [
        'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [v], dtype=tl.float32, is_pure=True, pack=1)',
        "libdevice.sinpi(v)",
        "v + tl.extra.cuda.globaltimer().to(tl.float32)",
        "v + tl.extra.cuda.smid()",
    ],
)
def test_what_cannot_be_interpreted_needs_a_gpu_and_is_no_failure(bench, write, expression):
    text = f"""
    def device_only(x, y, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        v = tl.load(x + i)
        tl.store(y + i, {expression})
    """
    function, kernel = write.kernel(text, POINTERS, BLOCK=16)
    function = function.with_(
        names=function.names | {"libdevice": {"triton": "triton.language.extra.libdevice"}}
    )
    x = torch.randn(16)
    bench.open(one_launch(write, (function, kernel), 1, (16,)))
    with pytest.raises(NeedsGpu, match="needs a GPU"):
        bench.call([x], [x])
    bench.open(
        one_launch(
            write,
            write.kernel(COPY, POINTERS | {"n": "i32", "reach": "i32"}, BLOCK=16),
            1,
            (16,),
            n=16,
            reach=0,
        )
    )
    bench.call([x], [x])
    assert torch.equal(bench.got[0], x)


@pytest.mark.parametrize(
    "name", ["triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice", ""]
)
def test_functions_of_libdevice_are_there_by_every_way_to_them(bench, write, name):
    function = "libdevice" if name else "tl.extra.cuda.libdevice"
    text = (
        "def tanh(x, y, BLOCK: tl.constexpr):\n    i = tl.arange(0, BLOCK)\n    tl.store(y + i, "
        f"{function}.tanh(tl.load(x + "
        "i)))\n"
    )
    function, kernel = write.kernel(text, POINTERS, BLOCK=16)
    if name:
        function = function.with_(names=function.names | {"libdevice": {"triton": name}})
    x = torch.randn(16)
    bench.open(one_launch(write, (function, kernel), 1, (16,)))
    bench.call([x], [x])
    assert torch.allclose(bench.got[0], x.tanh())


def test_a_kernel_may_ask_how_many_threads_it_has(bench, write):
    text = "def threads(x, y, BLOCK: tl.constexpr):\n    tl.store(y, tl.extra.cuda.num_threads() * 1.0)\n"
    function, kernel = write.kernel(text, POINTERS, BLOCK=1)
    bench.open(one_launch(write, (function, kernel.with_(options={"num_warps": 8})), 1, (1,)))
    bench.call([torch.zeros(1)], [torch.zeros(1)])
    assert float(bench.got[0]) == 256


def test_scalars_have_the_types_of_the_signature(bench, write):
    """A 64-bit count that does not fit 32 bits, a half that is rounded, a number that was compiled in."""
    text = """
    def scalars(x, y, big, half, one, BLOCK: tl.constexpr):
        tl.store(y, (big * 4 // 1000000000).to(tl.float32))
        tl.store(y + 1, half.to(tl.float32))
        tl.store(y + 2, (one + 1).to(tl.float32))
    """
    function, kernel = write.kernel(
        text, POINTERS | {"big": "i64", "half": "fp16"}, one=1, BLOCK=16
    )
    bench.open(one_launch(write, (function, kernel), 1, (3,), big=2_000_000_000, half=0.1))
    bench.call([torch.zeros(1)], [torch.zeros(3)])
    assert bench.got[0].tolist() == [8.0, float(torch.tensor(0.1, dtype=torch.float16)), 2.0]


BF16 = {
    "a + b": lambda a, b: a + b,
    "a - b * 3": lambda a, b: a - b * 3,
    "-a": lambda a, b: -a,
    "a / (b * b + 1)": lambda a, b: a / (b * b + 1),
    "tl.maximum(a, b)": torch.maximum,
    "tl.abs(a)": lambda a, b: a.abs(),
    "tl.where(a > b, a, 2 * b)": lambda a, b: torch.where(a > b, a, 2 * b),
    "(a.to(tl.float32) * 1.01).to(tl.bfloat16)": lambda a, b: (a.float() * 1.01).bfloat16(),
    "(a * 100).to(tl.int32).to(tl.bfloat16)": lambda a, b: (a * 100).int().bfloat16(),
    "(a.to(tl.float16) + 1).to(tl.bfloat16)": lambda a, b: (a.half() + 1).bfloat16(),
    "tl.sum(a, 0) + b": lambda a, b: (a.float().sum().bfloat16().float() + b.float()).bfloat16(),
    "tl.max(a, 0) - b": lambda a, b: a.max() - b,
    "tl.cumsum(a, 0)": lambda a, b: a.float().cumsum(0).bfloat16(),
    "tl.clamp(a, -0.5, 0.5)": lambda a, b: a.clamp(-0.5, 0.5),
}


@pytest.mark.parametrize("expression", list(BF16))
def test_bfloat16_is_computed_in_its_numbers_and_not_in_their_bits(bench, write, expression):
    text = f"""
    def bf(x, y, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        a = tl.load(x + i)
        b = tl.load(x + BLOCK + i)
        tl.store(y + i, {expression})
    """
    kernel = write.kernel(text, {"x": "*bf16", "y": "*bf16"}, BLOCK=64)
    steps = (
        write.empty(1, 64, dtype="bfloat16"),
        write.launch("bf", 1, x=write.t(0), y=write.t(1)),
    )
    bench.open(
        write.traced(Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(1)), kernel)
    )
    x = torch.randn(128).bfloat16()
    wanted = BF16[expression](x[:64], x[64:])
    bench.call([x], [wanted])
    rounds_at_each_step = "sum" in expression
    tolerance = 2**-7 * wanted.float().abs().max().item() if rounds_at_each_step else 1e-6
    assert torch.allclose(bench.got[0].float(), wanted.float(), rtol=2**-7, atol=tolerance)


def test_bfloat16_is_added_atomically(bench, write):
    text = """
    def add(x, y, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.atomic_add(y + i % 4, tl.load(x + i))
    """
    kernel = write.kernel(text, {"x": "*bf16", "y": "*bf16"}, BLOCK=16)
    where = {"dtype": {"dtype": "bfloat16"}, "device": {"device": "cuda"}}
    steps = (
        write.op("zeros", [4], out=1, **where),
        write.launch("add", 3, x=write.t(0), y=write.t(1)),
    )
    bench.open(
        write.traced(Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(1)), kernel)
    )
    x = torch.arange(16).bfloat16()
    bench.call([x], [x[:4]])
    assert torch.equal(bench.got[0], (3 * x.reshape(4, 4).float().sum(0)).bfloat16())


def test_a_combining_function_that_decides_by_value_is_called_for_each_element(bench, write):
    text = """
    def running(x, y, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(y + i, tl.associative_scan(tl.load(x + i), 0, larger))
        tl.store(y + BLOCK, tl.reduce(tl.load(x + i), 0, larger))
    """
    function, kernel = write.kernel(text, POINTERS, BLOCK=16)
    function = function.with_(names=function.names | {"larger": {"function": "larger"}})
    for body in (
        "return tl.maximum(a, b)",
        "if a > b:\n        return a\n    else:\n        return b",
    ):
        helper, _ = write.kernel(f"def larger(a, b):\n    {body}", {})
        trace = one_launch(write, (function, kernel), 1, (17,))
        bench.open(trace.with_(functions=trace.functions | {"larger": helper}))
        x = torch.randn(16)
        bench.call([x], [torch.zeros(17)])
        assert torch.equal(bench.got[0], torch.cat([x.cummax(0).values, x.max()[None]]))


def test_the_largest_of_a_row_of_nan_has_a_place(bench, write):
    text = """
    def place(x, y, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(y, tl.argmax(tl.load(x + i), axis=0).to(tl.float32))
    """
    bench.open(one_launch(write, write.kernel(text, POINTERS, BLOCK=16), 1, (1,)))
    bench.call([torch.full((16,), float("nan"))], [torch.zeros(1)])
    assert 0 <= float(bench.got[0]) < 16

"""A kernel renumbered from its other end: only where its programs may meet, and what comes out is a binary."""

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernelwright.tools.compiling.program_order import (
    assembled_in_reverse,
    in_reverse,
    kernels_with_shared_memory,
    may_wait,
    programs_may_meet,
)
from kernelwright.tools.compiling.reads_and_writes import writes_what_it_reads
from kernelwright.tools.trace.trace import Function, Kernel, Launch, Operator, Trace, Traced

TARGET = GPUTarget("cuda", 90, 32)


@triton.jit
def adds(x, out, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    total = tl.sum(tl.load(x + row * 64 + block * BLOCK + tl.arange(0, BLOCK)), axis=0)
    if block == 0:
        tl.store(out + row, total)
    else:
        tl.atomic_add(out + row, total)


@triton.jit
def copies(x, out, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(x + places))


@triton.jit
def shifts_in_place(x, out, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + places, tl.load(x + places + 1) + tl.load(out))


@triton.jit
def advances_both_pointers(x, out, BLOCK: tl.constexpr):
    read, written = x + tl.arange(0, BLOCK), out + tl.arange(0, BLOCK)
    for _ in range(8):
        tl.store(written, tl.load(read))
        read += BLOCK
        written += BLOCK


@triton.jit
def swaps_its_pointers(x, out, BLOCK: tl.constexpr):
    read, written = x + tl.arange(0, BLOCK), out + tl.arange(0, BLOCK)
    for _ in range(8):
        tl.store(written, tl.load(read))
        read, written = written, read


@triton.jit
def chooses_where_to_write(x, out, BLOCK: tl.constexpr):
    written = out
    if tl.program_id(0) > 3:
        written = x
    tl.store(written + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))


@triton.jit
def describes_it_twice(x, out, BLOCK: tl.constexpr):
    read = tl.make_tensor_descriptor(x, [64, 64], [64, 1], [BLOCK, BLOCK])
    written = tl.make_tensor_descriptor(x, [64, 64], [64, 1], [BLOCK, BLOCK])
    written.store([0, 0], read.load([16, 16]))


@triton.jit
def follows_an_address(x, out, BLOCK: tl.constexpr):
    where = tl.load(x).to(tl.int64).to(tl.pointer_type(tl.float32))
    tl.store(where, tl.load(out))


@triton.jit
def reads_in_a_loop_that_ends_by_itself(x, out, BLOCK: tl.constexpr):
    at = x
    while tl.load(at) > 0:
        at += 1
    tl.store(out, tl.load(at))


def compiled(function):
    signature = {"x": "*fp32", "out": "*fp32", "BLOCK": "constexpr"}
    return triton.compile(ASTSource(function, signature, {(2,): 16}), target=TARGET)


@pytest.fixture(scope="module")
def adding():
    return compiled(adds)


def test_a_kernel_with_atomics_counts_both_axes_from_the_end(adding):
    before, after = adding.asm["ptx"], in_reverse(adding.asm["ptx"])
    assert before.count("%ctaid") == 2
    assert [after.count(f"%nctaid.{axis}") for axis in "xyz"] == [1, 1, 0]


def test_the_renumbered_kernel_is_another_binary_of_the_same_name(adding):
    made = assembled_in_reverse(adding, TARGET, shared=False)
    assert made[:4] == b"\x7fELF"
    assert made != adding.kernel
    assert adding.metadata.name.encode() in made


def test_a_kernel_whose_programs_do_not_meet_is_left_alone():
    plain = compiled(copies)
    assert assembled_in_reverse(plain, TARGET, shared=False) == b""
    assert assembled_in_reverse(plain, TARGET, shared=True)[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("function", "meets"),
    [
        (copies, False), (advances_both_pointers, False), (shifts_in_place, True),
        (swaps_its_pointers, True), (chooses_where_to_write, True), (describes_it_twice, True),
        (follows_an_address, True), (reads_in_a_loop_that_ends_by_itself, True),  # not followed
    ],
    ids=lambda one: getattr(one, "__name__", str(one)),
)  # fmt: skip
def test_memory_that_is_read_and_written_is_seen(function, meets):
    made = compiled(function)
    assert writes_what_it_reads(made.asm["ttir"]) is meets
    assert programs_may_meet("", made.asm["ttir"], shared=False) is meets


@pytest.mark.parametrize(
    ("operator", "shares"), [("aten.as_strided.default", True), ("aten.clone.default", False)]
)  # fmt: skip
def test_two_arguments_in_the_same_memory_are_seen(operator, shares):
    made = Operator(op=operator, args=({"t": 0},), out={"t": 1})
    launch = Launch(kernel="k", grid=(1, 1, 1), args={"x": {"t": 0}, "out": {"t": 1}})
    traced = Traced(traces=(None, Trace(first=(made, launch))))
    assert kernels_with_shared_memory(traced) == ({"k"} if shares else set())


def test_blocks_in_clusters_are_left_alone(adding):
    assert in_reverse(adding.asm["ptx"] + "\n// %cluster_ctaid.x") is None


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("for i in range(n): tl.atomic_add(p, i)", False),
        ("while tl.atomic_cas(p, 0, 1) != 0: pass", True),
        ("tl.inline_asm_elementwise(WAIT, '=r', [], tl.int32, False, 1)", True),
    ],
)
def test_only_a_loop_without_a_count_and_assembly_may_wait_for_another_program(line, waits):
    helper = Function(name="helper", text=f"def helper(p, n):\n    {line}")
    kernel = Function(
        name="kernel",
        text="def kernel(p, n):\n    helper(p, n)",
        names={"helper": {"function": "h"}},
    )
    traced = Traced(
        functions={"h": helper, "k": kernel}, kernels={"l": Kernel(function="k", signature={})}
    )
    assert may_wait(traced, "l") is waits

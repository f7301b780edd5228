"""A kernel renumbered from its other end: only where its programs may meet, and what comes out is a binary."""

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernelwright.tools.compiling.program_order import assembled_in_reverse, in_reverse, may_wait
from kernelwright.tools.tracing.trace import Function, Kernel, Traced

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
    made = assembled_in_reverse(adding, TARGET)
    assert made[:4] == b"\x7fELF"
    assert made != adding.kernel
    assert adding.metadata.name.encode() in made


def test_a_kernel_without_atomics_is_left_alone():
    plain = compiled(copies)
    assert in_reverse(plain.asm["ptx"]) is None
    assert assembled_in_reverse(plain, TARGET) == b""


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
    kernel = Function(name="kernel", text="def kernel(p, n):\n    helper(p, n)", names={"helper": {"function": "h"}})
    traced = Traced(functions={"h": helper, "k": kernel}, kernels={"l": Kernel(function="k", signature={})})
    assert may_wait(traced, "l") is waits

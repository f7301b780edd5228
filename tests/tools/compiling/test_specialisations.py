"""Sizes that differ only in what divides their arguments share one binary; the problem's own size keeps its own."""

from kernelwright.tools.compiling.specialisations import guess_for_other_sizes, share_binaries
from kernelwright.tools.trace.trace import Function, Kernel, Traced

SIXTEEN = [["tt.divisibility", 16]]
FUNCTION = Function(name="add", text="def add(x, n, m):\n    pass\n")


def kernel(*divisible: int, **changes) -> Kernel:
    return Kernel(
        function="f",
        signature={"x": "*fp32", "n": "i32", "m": "i32"},
        attributes=tuple(((place,), SIXTEEN) for place in divisible),
    ).with_(**changes)


def shared(**kernels: Kernel) -> dict[str, Kernel]:
    traced = Traced(functions={"f": FUNCTION}, kernels=kernels)
    return share_binaries(traced, ["own"]).kernels


def test_what_all_sizes_assume_is_what_is_left():
    found = shared(own=kernel(0, 1, 2), a=kernel(0, 1), b=kernel(0, 2), c=kernel(0, 1, 2))
    assert found["own"] == kernel(0, 1, 2)
    assert found["a"] == found["b"] == found["c"] == kernel(0)


def test_kernels_that_differ_in_more_are_compiled_apart():
    wide = kernel(0, 1, options={"num_warps": 8})
    one = kernel(0, signature={"x": "*fp32", "n": "i32", "m": "constexpr"}, constants=(((2,), 1),))
    found = shared(a=kernel(0, 1), b=kernel(0, 2), wide=wide, one=one)
    assert found["a"] == found["b"] == kernel(0)
    assert found["wide"] == wide
    assert found["one"] == one


def test_a_kernel_alone_is_as_it_was():
    assert shared(own=kernel(0), a=kernel(0, 1)) == {"own": kernel(0), "a": kernel(0, 1)}


def test_other_sizes_are_guessed_to_know_of_addresses_alone():
    traced = Traced(
        functions={"f": FUNCTION},
        kernels={"own": kernel(0, 1), "plain": kernel(0), "other": kernel(0, 2)},
    )
    assert guess_for_other_sizes(traced, ["own", "plain"]).kernels == {"own": kernel(0)}

"""Which expressions of a reference are sizes, and what they come to."""

import ast

import pytest

from kernelwright.tools.problem import Problem, module_integers, resized
from kernelwright.tools.reference_integers import inner


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("4096", 4096),
        ("1 << 24", 1 << 24),
        ("(1 << 12) + 1", 4097),
        ("1 << 4 << 3", 128),
        ("2**24", 1 << 24),
        ("3 * 2**10", 3072),
        ("1024 * 1024 * 16", 1 << 24),
        ("2 * (64 + 3)", 134),
        ("1_000_000 // 3", 333333),
        ("1 << 20 >> 4", 65536),
        ("1000 % 7", 6),
        ("+64", 64),
        ("-(2**3)", -8),
    ],
)
def test_arithmetic_of_literals_is_a_size(written: str, value: int):
    assert module_integers(f"N = {written}\n") == {"N": value}


@pytest.mark.parametrize(
    "written",
    [
        "1 << 64",
        "2**64",
        "((2**64) ** 64) ** 64",
        "10**9 ** 9",
        "1 << 10**9",
        "1 << -1",
        "2**-1",
        "7 // 0",
        "7 % 0",
        "4096 / 2",
        "2.0 * 8",
        "True << 3",
        "int(1e6)",
    ],
)
def test_what_is_no_integer_of_63_bits_is_not_a_size(written: str):
    assert module_integers(f"N = {written}\n") == {}


def test_a_shifted_size_is_replaced_and_what_is_computed_from_it_follows():
    source = "N = 1 << 24\nHALF = N // 2\nshape = (1 << 3, 2**5)\n"
    space: dict = {}
    exec(resized(source, {"N": 100, "shape[1]": 7}), space)
    assert (space["N"], space["HALF"], space["shape"]) == (100, 50, (8, 7))


def test_a_problem_that_writes_its_size_as_a_shift_is_checked_at_other_sizes(evaluator):
    source = """import torch

N = 1 << 20


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.rand(N)]


def get_init_inputs():
    return []
"""
    candidate = """import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n)
    tl.store(y_ptr + places, x * 2, mask=places < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
    report = evaluator.evaluate(Problem(name="double", source=source), candidate)
    assert report.correct
    assert report.interpreted is not None
    tried = [one.sizes["N"] for one in report.interpreted.tried if one.sizes]
    assert len(set(tried)) > 3
    assert max(tried) < 1 << 20


def test_a_size_inside_of_a_list_is_named_by_its_tensor():
    source = """
class Model:
    def forward(self, parts, table):
        return parts


def get_inputs():
    return [[torch.randn(37, 5), (torch.randn(37, 6), 9)], {"left": torch.ones(37, 7)}]
"""
    names = {name for name, _ in inner(ast.parse(source))}
    assert {"parts[0].shape[1]", "parts[1][0].shape[1]", "table[left].shape[1]"} <= names, names

"""Indices of 32 bits in products, and of 64 where a tensor is larger than they reach."""

from __future__ import annotations

import ast

import pytest
import torch
import triton.language as tl

from kernelwright.policies.inductor.writing.products.index_type import INDEX_TYPE, use_index_type

KERNEL = """
def kernel(x_pointer, rows, ROW_BLOCK: tl.constexpr):
    row_tile = tl.program_id(1)
    first_row = row_tile.to(tl.int64) * ROW_BLOCK
    row = first_row + tl.arange(0, ROW_BLOCK)[:, None].to(tl.int64)
    part = (row // 3).to(tl.int64)
    x = tl.load(x_pointer + part, row < rows)
    whole = x.to(tl.int64)
"""


def test_every_cast_of_an_index_becomes_one_to_the_given_type():
    function = ast.parse(KERNEL).body[0]
    assert use_index_type(function)
    text = ast.unparse(function)
    assert "first_row = row_tile.to(INDEX) * ROW_BLOCK" in text
    assert "tl.arange(0, ROW_BLOCK)[:, None].to(INDEX)" in text
    assert "part = row // 3\n" in text, "what has the type already is not cast again"
    assert "whole = x.to(tl.int64)" in text, "what was loaded keeps its own type"
    assert text.splitlines()[0].endswith("ROW_BLOCK: tl.constexpr, INDEX: tl.constexpr):")


def test_a_kernel_of_32_bits_stays_as_it_is():
    function = ast.parse(KERNEL.replace(".to(tl.int64)", "")).body[0]
    before = ast.unparse(function)
    assert not use_index_type(function)
    assert ast.unparse(function) == before


@pytest.mark.parametrize(
    ("shape", "stride", "wanted"),
    [((2**16, 2**14), (2**14, 1), tl.int32), ((2**17, 2**14), (2**14, 1), tl.int64), ((2, 2), (2**31, 1), tl.int64),
     ((0, 4), (4, 1), tl.int32), ((), (), tl.int32)],
)  # fmt: skip
def test_the_type_follows_what_an_index_reaches(shape, stride, wanted):
    scope = {"tl": tl}
    exec(INDEX_TYPE, scope)
    tensor = torch.empty_strided(shape, stride, device="meta")
    assert scope["index_type"](torch.empty(3, device="meta"), tensor) is wanted

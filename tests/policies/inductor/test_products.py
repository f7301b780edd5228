"""Products of drafts: matrices without a reshape, in fp32, and the library asked for channels last."""

import ast
import re

import pytest

from kernelwright.policies.inductor.draft import DraftMode, draft, has_split_products
from kernelwright.policies.inductor.writing.divisors import divisors_as_constants
from kernelwright.policies.inductor.writing.products.flat_products import flat_products
from kernelwright.policies.inductor.writing.products.hoisting import hoist_divisions
from kernelwright.policies.inductor.writing.products.parts import add_up_parts
from kernelwright.policies.inductor.writing.products.two_axes import drop_axes_of_one
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem

LINEAR = """
import torch
from torch import nn
batch, features, hidden = {batch}, {features}, {hidden}
CPU_SIZES = {{"batch": 21, "features": 67, "hidden": 37}}
class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)
    def forward(self, x):
        return torch.relu(self.linear(x) * 0.5)
def get_inputs():
    return [torch.randn(batch, features)]
def get_init_inputs():
    return [features, hidden]
"""
CONVOLUTION = """
import torch
from torch import nn
batch, channels, wide, size = 16, 32, 64, 64
CPU_SIZES = {"batch": 2, "channels": 3, "wide": 5, "size": 9}
class Model(nn.Module):
    def __init__(self, channels, wide):
        super().__init__()
        self.conv = nn.Conv2d(channels, wide, 3)
    def forward(self, x):
        return torch.sigmoid(self.conv(x))
def get_inputs():
    return [torch.randn(batch, channels, size, size)]
def get_init_inputs():
    return [channels, wide]
"""
BATCHED = """
import torch
count, size = 4, 512
CPU_SIZES = {{"count": 3, "size": 39}}
class Model(torch.nn.Module):
    def forward(self, a, b):
        return {product}
def get_inputs():
    return [torch.randn(count, size, size), torch.randn(count, size, size)]
def get_init_inputs():
    return []
"""
LOOP = """
def kernel(a_pointer, b_pointer, out_pointer, depth, ROW_BLOCK, COLUMN_BLOCK, STEP_BLOCK):
    row = tl.arange(0, ROW_BLOCK)[:, None, None]
    column = tl.arange(0, COLUMN_BLOCK)[None, :, None]
    so_far = tl.full([ROW_BLOCK, COLUMN_BLOCK], 0, tl.float32)
    for first in tl.range(0, depth, STEP_BLOCK):
        step = first + tl.arange(0, STEP_BLOCK)[None, None, :]
        a = tl.load(a_pointer + (step + depth * row), step < depth, other=0.0)
        b = tl.load(b_pointer + (step + depth * column), step < depth, other=0.0)
        tile = tl.trans(tl.reshape(b, [COLUMN_BLOCK, STEP_BLOCK]))
        product = tl.dot(tl.reshape(a, [ROW_BLOCK, STEP_BLOCK]), tile, input_precision='ieee')
        so_far += product
    tl.store(out_pointer + (row + column), so_far[:, :, None])
"""


def drafted(drafter, source, mode=DraftMode.STRICT, **asked):
    made = draft(source, drafter.run, mode=mode, partial=mode is DraftMode.SHARE, **asked)
    assert made.usable, made.refused
    return made


def judged(source, candidate, own_work="strict"):
    with Evaluator(device="cpu") as evaluator:
        report = evaluator.evaluate(
            Problem(name="p", source=source), candidate, Options(seed=3, own_work=own_work)
        )
    assert report.correct, report.explanation
    return report


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("batch", "features", "hidden"), [(64, 256, 512), (1024, 2048, 4096)])
def test_products_of_fp32_are_made_in_fp32(drafter, batch, features, hidden):
    made = drafted(drafter, LINEAR.format(batch=batch, features=features, hidden=hidden))
    assert set(re.findall(r"input_precision='(\w+)'", made.source)) == {"ieee"}
    assert "bf" not in made.source


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_large_products_of_fp32_are_three_of_float16_parts_and_small_ones_are_not(drafter):
    large, small = (
        LINEAR.format(batch=b, features=f, hidden=h)
        for b, f, h in ((1024, 2048, 4096), (64, 256, 512))
    )
    made = drafted(drafter, large, split=True)
    assert has_split_products(made.source)
    product = made.source.split("def linear_matmul")[1].split("def ")[0]
    assert re.findall(r"small_sum = tl.dot\((\w+), (\w+), small_sum\)", product) == [
        ("x_low", "linear_weight_high"), ("x_high", "linear_weight_low"),
    ]  # fmt: skip
    assert re.search(
        r"= tl.dot\(x_high, linear_weight_high, max_num_imprecise_acc=STEP_BLOCK\)", product
    )
    assert ".to(tl.float" not in product, "parts are multiplied as they were loaded"
    assert re.search(r"tl.store\(\s*output_2_pointer \+ [^,]+, converted,", made.source), (
        "the high part is the rounded one"
    )
    judged(large, made.source)
    assert not has_split_products(drafted(drafter, small, split=True).source)
    uneven = LINEAR.format(batch=1024, features=2049, hidden=4096)
    assert not has_split_products(drafted(drafter, uneven, split=True).source), (
        "rows that begin between vectors"
    )


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "product", ["a @ b", "a.mT @ b", "a @ torch.relu(b.mT)", "torch.sigmoid(a @ b) @ (2 * b)"]
)
def test_parts_of_transposed_batched_and_computed_operands_are_right(drafter, product):
    source = BATCHED.format(product=product)
    made = drafted(drafter, source, split=True)
    assert has_split_products(made.source)
    judged(source, made.source)


ATTENTION = """
import torch
import torch.nn as nn
batch, tokens, width, heads = 8, 128, 512, 4
class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.width = heads, width
        self.both = nn.Linear(width, 3 * width)
    def forward(self, x):
        b, t, c = x.shape
        parts = self.both(x).split(self.width, dim=2)
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in parts)
        return (torch.softmax(q @ k.mT, dim=-1) @ v).transpose(1, 2).reshape(b, t, c)
def get_inputs():
    return [torch.randn(batch, tokens, width)]
def get_init_inputs():
    return [width, heads]
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_parts_of_heads_whose_width_is_a_quotient_of_sizes_fix_no_size(drafter):
    made = drafted(drafter, ATTENTION, split=True)
    assert has_split_products(made.source)
    assert made.fixed_sizes == ()


def test_an_infinity_stays_one_where_its_low_part_is_no_number():
    text = LOOP.replace("product = ", "p_3 = ").replace(
        "so_far += product", "so_far += p_1 + p_2 + p_3"
    )
    (line,) = [line for line in text.splitlines() if "p_3 = " in line]
    function = kernel_of(
        text.replace(
            line, "\n".join([line.replace("p_3", "p_1"), line.replace("p_3", "p_2"), line])
        )
    )
    assert add_up_parts(function)
    written = ast.unparse(function)
    assert "so_far = tl.where(tl.abs(so_far) < float('inf'), so_far + small_sum, so_far)" in written
    assert written.count("small_sum = tl.dot(") == 2
    assert "so_far += p_3" in written
    assert not add_up_parts(kernel_of(LOOP)), "one product is no product of parts"


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_transposed_weight_of_fp32_is_turned_before_a_large_product(drafter):
    made = drafted(drafter, LINEAR.format(batch=1024, features=2048, hidden=4096))
    assert made.kernels == 2
    assert "right_column + hidden * right_step" in made.source, "columns lie side by side"
    judged(LINEAR.format(batch=1024, features=2048, hidden=4096), made.source)
    assert drafted(drafter, LINEAR.format(batch=16, features=2048, hidden=4096)).kernels == 1


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_library_convolution_has_channels_last_and_fixes_no_size(drafter):
    made = drafted(drafter, CONVOLUTION, DraftMode.SHARE)
    assert made.library_calls == ("convolution",)
    assert made.fixed_sizes == ()
    assert "memory_format=torch.channels_last" in made.source
    judged(CONVOLUTION, made.source, "share:0.01")


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_an_own_convolution_is_made_in_fp32_and_divides_by_constants(drafter):
    made = drafted(drafter, CONVOLUTION)
    assert "input_precision='ieee'" in made.source
    assert re.search(r"size(_2)?: tl.constexpr", made.source), "what divides is a constant"
    judged(CONVOLUTION, made.source)


def kernel_of(text):
    (function,) = ast.parse(text).body
    return function


def test_operands_are_loaded_as_matrices():
    function = kernel_of(LOOP)
    flat_products(function)
    text = ast.unparse(function)
    assert "reshape" not in text
    assert "trans" not in text
    assert "product = tl.dot(a, b, input_precision='ieee')" in text


def test_each_of_several_products_is_loaded_as_matrices_and_zeros_of_one_element_are_numbers():
    *start, last = LOOP.rstrip().splitlines()
    made = "tl.reshape(maximum(a, tl.full([1, 1, 1], 0.0, tl.float32)), ["
    loop = "\n".join(start[6:]).replace("tl.reshape(a, [", made)
    second = loop.replace("product", "product_2").replace("tile", "tile_2")
    second = (
        second.replace("b = ", "c = ").replace("reshape(b", "reshape(c").replace("a = ", "d = ")
    )
    function = kernel_of(
        "\n".join([*start[:6], loop, second.replace("maximum(a", "maximum(d"), last])
    )
    flat_products(function)
    text = ast.unparse(function)
    assert text.count("tl.dot(") == 2
    assert "reshape" not in text
    assert "tl.full([1" not in text
    assert "maximum(d, 0.0)" in text
    assert "[None, None, :]" not in text, "steps have the axes of a matrix in every loop"


def test_a_product_has_rows_and_columns_alone_once_its_operands_are_matrices():
    function = kernel_of(LOOP)
    flat_products(function)
    assert drop_axes_of_one(function)
    text = ast.unparse(function)
    assert "row = tl.arange(0, ROW_BLOCK)[:, None]" in text
    assert "left_row" not in text
    assert "None, None" not in text
    assert "tl.store(out_pointer + (row + column), so_far)" in text


def test_a_product_keeps_its_axes_where_another_call_makes_them():
    function = kernel_of(LOOP.replace("so_far[:, :, None]", "tl.sum(so_far, 1)[:, None, None]"))
    flat_products(function)
    before = ast.unparse(function)
    assert not drop_axes_of_one(function)
    assert ast.unparse(function) == before


def test_divisions_that_no_step_changes_leave_the_loop():
    function = kernel_of(
        LOOP.replace("depth * row)", "row // depth % 7 + depth * (row % (step + 1)))")
    )
    flat_products(function)
    hoist_divisions(function)
    before, _, loop = ast.unparse(function).partition("for first")
    assert (
        "left_row_part = left_row // depth % 7" in before
        or "left_row_part = row // depth % 7" in before
    )
    assert "//" not in loop
    assert "% (left_step + 1)" in loop or "% (step + 1)" in loop


def test_sizes_that_are_asked_for_a_method_stay_numbers():
    text = """
def kernel(x_pointer, width, height, wide, ELEMENT_BLOCK: tl.constexpr):
    element = tl.arange(0, ELEMENT_BLOCK)
    total = height * 2
    tl.store(x_pointer + element % width + element // height % wide, total.to(tl.float32), element < width)
"""
    function = kernel_of(text)
    divisors_as_constants(function)
    constant = [a.arg for a in function.args.args if a.annotation is not None]
    assert constant == ["width", "wide", "ELEMENT_BLOCK"]


def test_an_operand_that_is_made_in_another_way_leaves_the_kernel_as_it_is():
    function = kernel_of(LOOP.replace("depth * column)", "depth * tl.sum(column))"))
    before = ast.unparse(function)
    flat_products(function)
    assert ast.unparse(function) == before


def test_one_element_is_multiplied_with_a_matrix_as_it_is():
    scale = "    scale = tl.broadcast_to(tl.load(scale_pointer), [1, 1, 1])\n"
    text = LOOP.replace("    for first in", f"{scale}    for first in").replace(
        "tl.reshape(b, [", "tl.reshape(b / scale, ["
    )
    function = ast.parse(text.replace("b_pointer, out", "b_pointer, scale_pointer, out")).body[0]
    assert isinstance(function, ast.FunctionDef)
    flat_products(function)
    written = ast.unparse(function)
    assert "[1, 1, 1]" not in written
    assert "tl.reshape" not in written

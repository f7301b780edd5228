"""Numbers that the host passes to a kernel, as constants of it and as blocks."""

import ast

import pytest

from kernelwright.policies.inductor.writing.divisors import (
    divisors_as_constants,
    inner_names,
    numbers_spread,
)


def function_of(text: str) -> ast.FunctionDef:
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    return function


@pytest.mark.parametrize(
    "number",
    ["height", "-8 * height + width", "area", "3", "1 * (1 >= width) + width * (width > 1)"],
)
def test_a_number_that_is_broadcast_is_a_block_of_noughts_and_the_number(number: str):
    function = function_of(
        "def kernel(x_pointer, height, width, ROW_BLOCK):\n"
        "    area = height * width\n"
        f"    wide = tl.broadcast_to({number}, [ROW_BLOCK, 1])\n"
    )
    numbers_spread(function)
    assert ast.unparse(function.body[1]) in (
        f"wide = tl.zeros([ROW_BLOCK, 1], tl.int32) + {number}",
        f"wide = tl.zeros([ROW_BLOCK, 1], tl.int32) + ({number})",
    )


def test_a_block_that_is_broadcast_stays():
    text = (
        "def kernel(x_pointer, width, ROW_BLOCK):\n    row = tl.arange(0, ROW_BLOCK)[:, None] % width\n"
        "    wide = tl.broadcast_to(row, [ROW_BLOCK, 4])"
    )
    function = function_of(text)
    numbers_spread(function)
    assert ast.unparse(function) == text


@pytest.mark.parametrize("broadcast", ["count", "count + 1"])
def test_a_constant_that_is_divided_by_and_broadcast_compiles(broadcast: str, tmp_path):
    """Triton 3.6 has no `tl.broadcast_to` of a constant, which a size that is divided by is."""
    function = function_of(
        "def kernel(x_pointer, count, BLOCK):\n"
        "    place = tl.arange(0, BLOCK) // count\n"
        f"    wide = tl.broadcast_to({broadcast}, [BLOCK])\n"
        "    tl.store(x_pointer + place, wide)\n"
    )
    numbers_spread(function)
    divisors_as_constants(function)
    assert "count: tl.constexpr" in ast.unparse(function)
    assert "broadcast_to" not in ast.unparse(function)
    path = tmp_path / "written.py"
    head = "import triton\nimport triton.language as tl\n@triton.jit\n"
    path.write_text(head + ast.unparse(function).replace("BLOCK)", "BLOCK: tl.constexpr)", 1))
    compiled(path)


def compiled(path):
    """Compiles the file's kernel for a GPU that is not there."""
    import importlib.util

    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    spec = importlib.util.spec_from_file_location("written", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    signature = {"x_pointer": "*i32", "count": "constexpr", "BLOCK": "constexpr"}
    source = ASTSource(fn=module.kernel, signature=signature, constexprs={(1,): 3, (2,): 64})
    assert compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]


REDUCTION = (
    "def kernel(x_pointer, width, inner_width, columns, ROW_BLOCK, COLUMN_BLOCK):\n"
    "    row = tl.arange(0, ROW_BLOCK)[:, None]\n"
    "    row_part = row // width\n"
    "    for first_column in range(0, columns, COLUMN_BLOCK):\n"
    "        column = first_column + tl.arange(0, COLUMN_BLOCK)[None, :]\n"
    "        value = tl.load(x_pointer + row_part + row % width + column // inner_width)\n"
)


def test_a_division_once_a_row_is_by_an_argument_and_one_for_each_element_by_a_constant():
    function = function_of(REDUCTION)
    made = divisors_as_constants(function, inner_names(function, ["r0_index"]))
    assert [argument.arg for argument in made] == ["inner_width"]
    assert "width, inner_width: tl.constexpr, columns," in ast.unparse(function)


def test_every_division_of_a_kernel_that_reduces_nothing_is_by_a_constant():
    function = function_of(REDUCTION)
    assert [argument.arg for argument in divisors_as_constants(function)] == [
        "width",
        "inner_width",
    ]


def test_what_masks_compare_with_is_a_constant_where_it_is_asked_for():
    function = function_of(REDUCTION)
    made = divisors_as_constants(function, compared=["columns"])
    assert [argument.arg for argument in made] == ["width", "inner_width", "columns"]

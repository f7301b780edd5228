"""Kernels that are simplified keep their values, and lines over the width are broken."""

import ast

import pytest

from kernelwright.policies.inductor.tracing.problem_text import ProblemText
from kernelwright.policies.inductor.writing import divisors, lines, plain
from kernelwright.policies.inductor.writing.expressions import tidying
from kernelwright.policies.inductor.writing.words import computed_sizes, evidence, stored


def simplified(*statements: str) -> list[str]:
    function = ast.parse("def kernel(p, ks0):\n" + "".join(f"    {s}\n" for s in statements)).body[
        0
    ]
    assert isinstance(function, ast.FunctionDef)
    return [ast.unparse(s) for s in tidying.tidy_kernel(function).body]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = tl.where(m, tl.where(m, x, y), z)", "a = tl.where(m, x, z)"),
        ("a = tl.where(m, tl.where(n, x, y), z)", "a = tl.where(m, tl.where(n, x, y), z)"),
        ("a = tl.where(m, x, tl.full([1, 1], 0.5, tl.float32))", "a = tl.where(m, x, 0.5)"),
        ("a = tl.where(m, x, tl.full(x.shape, 0.0, x.dtype))", "a = tl.where(m, x, 0)"),
        ("a = tl.where(m, x, tl.full([1], 0.0, tl.float32))", "a = tl.where(m, x, 0.0)"),
        (
            "a = tl.where(m, x, tl.full(y.shape, 0.0, y.dtype))",
            "a = tl.where(m, x, tl.full(y.shape, 0.0, y.dtype))",
        ),
        (
            "a = tl.where(m, r0_1, tl.full([1, 1], 60, tl.int64))",
            "a = tl.where(m, r0_1, tl.full([1, 1], 60, tl.int64))",
        ),
        ("a = tl.where(m, tmp0, tl.full([1, 1], 60, tl.int64))", "a = tl.where(m, tmp0, 60)"),
        ("a = maximum(tl.full([1], 0, tl.int32), x)", "a = maximum(x, 0)"),
        ("a = maximum(_tmp3, tl.broadcast_to(x, [XBLOCK, R0_BLOCK]))", "a = maximum(_tmp3, x)"),
        ("a = _tmp3 + tl.broadcast_to(x, [XBLOCK, R0_BLOCK])", "a = _tmp3 + x"),
        (
            "a = y + tl.broadcast_to(x, [XBLOCK, R0_BLOCK])",
            "a = y + tl.broadcast_to(x, [XBLOCK, R0_BLOCK])",
        ),
        ("a = (x0 % ks0).to(tl.int64) < tmp1", "a = x0 % ks0 < tmp1"),
        ("a = tmp0.to(tl.int64) < tmp1", "a = tmp0.to(tl.int64) < tmp1"),
        ("a = tl.full([1], False, tl.int1) | m", "a = m"),
        ("a = (tl.full([1], False, tl.int1) == 0) & m", "a = m"),
        ("a = tl.full([1], True, tl.int1) | m", "a = tl.full([1], True, tl.int1) | m"),
        ("a = tl.load(p + 0)", "a = tl.load(p)"),
        ("a = x + (3).to(tl.int32)", "a = x + 3"),
        ("a = x + (3).to(tl.float16)", "a = x + tl.cast(3, tl.float16)"),
        ("a = 1 * (1 >= ks0) + ks0 * (ks0 > 1)", "a = tl.maximum(1, ks0)"),
        ("a = x0 + -1 * ks0", "a = x0 - ks0"),
        ("a = -1 + ks0 + x0 * (-2 * ks1 + x1)", "a = ks0 + x0 * (x1 - 2 * ks1) - 1"),
        ("a = x0 + (1 + x1)", "a = x0 + (x1 + 1)"),
        ("a = 1 + x0 + -3", "a = x0 - 2"),
        ("a = -1 * ks0 + -1 * ks1", "a = -1 * ks0 + -1 * ks1"),
        ("a = -1 + tmp0", "a = -1 + tmp0"),
        (
            "a = minimum(tmp0 + tmp1, tl.full([1], 1.0, tl.float32))",
            "a = minimum(tmp0 + tmp1, 1.0)",
        ),
        (
            "a = tl.where(m, tl.full([1], -2.0, tl.float32), tl.full([1], 0.0, tl.float32))",
            "a = tl.where(m, -2.0, 0.0)",
        ),
        ("a = tl.cast(2 * ks0, tl.int64).to(tl.int64) <= x0.to(tl.int64)", "a = 2 * ks0 <= x0"),
        ("a = tl.cast(ks0 + 1, tl.float32).to(tl.float32)", "a = tl.cast(ks0 + 1, tl.float32)"),
    ],
)
def test_an_expression_is_simplified_only_where_it_stays_the_same(before: str, after: str):
    assert simplified(before) == [after]


@pytest.mark.parametrize(
    ("size", "name"),
    [
        ("2 * s + 1", "s_by_2_plus_1"),
        ("rows * columns", "rows_by_columns"),
        ("(height - 1) // 2", "height_minus_1_over_2"),
        ("s % 4", ""),
        ("7 + s", ""),
        ("batch * channels * (height + 2) * (width + 2)", ""),
    ],
)
def test_a_size_that_is_computed_has_a_name_where_that_is_short(size: str, name: str):
    assert computed_sizes.name_of(ast.parse(size, mode="eval").body) == name


def test_outputs_are_called_after_the_reductions_that_make_them():
    (function,) = ast.parse("""
def kernel(in_ptr0, out_ptr0, out_ptr1, out_ptr2, out_ptr3):
    tmp2, tmp3, tmp4 = triton_helpers.welford(a, b, c, 1)
    tmp5 = tmp2[:, None]
    tl.store(out_ptr0 + x0, tmp5, xmask)
    tl.store(out_ptr1 + x0, tmp3[:, None].to(tl.float32), xmask)
    tmp6 = triton_helpers.max2(tmp1, 1)[:, None]
    tl.store(out_ptr2 + x0, tmp6, xmask)
    tl.store(out_ptr3 + x0, tmp6 + 1, xmask)
""").body
    assert isinstance(function, ast.FunctionDef)
    assert stored.stored_words(function) == {
        "out_ptr0": "mean",
        "out_ptr1": "squares",
        "out_ptr2": "largest",
    }


def test_a_long_load_that_is_converted_is_broken_inside_of_its_brackets():
    address = " + ".join(
        f"{name}_index * {name}_stride" for name in ("batch", "channel", "row", "column")
    )
    (first, *_, last) = lines.break_line(
        f"    mask = tl.load(mask_pointer + ({address}), row_exists).to(tl.int1)"
    )
    assert (first, last) == ("    mask = tl.load(", "    ).to(tl.int1)")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = ks0.to(tl.float64)", "a = tl.cast(ks0, tl.float64)"),
        ("a = (ks0 * ks0).to(tl.float32)", "a = tl.cast(ks0 * ks0, tl.float32)"),
        ("a = ks0.to(tl.float32)", "a = ks0 * 1.0"),
        ("a = (ks0 + x).to(tl.float32)", "a = (ks0 + x).to(tl.float32)"),
    ],
)
def test_a_size_is_converted_by_a_function(before: str, after: str):
    """Triton makes a constant of an argument that is 1, and that has no method `to`."""
    function = ast.parse(f"def kernel(p, ks0, x):\n    {before}\n    tl.store(p, a)\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert ast.unparse(plain.simplify_kernel(function).body[0]) == after


def test_a_condition_on_constants_goes_where_it_always_holds():
    constants = ["c = tl.full([1], 0, tl.int64)", "d = tl.full([1], 1, tl.int64)"]
    assert simplified(*constants, "e = c < d", "a = e & m")[3] == "a = m"
    assert simplified(*constants, "e = c >= d", "a = e & m")[3] == "a = e & m"
    assert simplified("e = 0 < 1 < n", "a = e & m")[1] == "a = e & m"
    assert simplified(*constants, "e = c >= d", "a = (e == 0) & m")[3] == "a = m"
    assert simplified(*constants, "e = c >= d", "a = e | m")[3] == "a = m"
    assert simplified("t = tl.full([1], False, tl.int1) == 0", "a = t & m")[1] == "a = m"
    assert (
        simplified("e = m", "e = tl.full([1], True, tl.int1) == 0", "a = e | m")[2] == "a = e | m"
    )


def test_a_choice_that_is_known_is_made_between_loads_of_the_same_places_alone():
    loads = ["x = tl.load(p + i, m)", "y = tl.load(q + i, m)", "z = tl.load(q + 0)", "e = 0 < 1"]
    assert simplified(*loads, "a = tl.where(e, x, y)")[4] == "a = x"
    assert simplified(*loads, "a = tl.where(e == 0, x, y)")[4] == "a = y"
    assert simplified(*loads, "a = tl.where(e, z, y)")[4] == "a = tl.where(e, z, y)"
    assert simplified(*loads, "a = tl.where(e, 1.0, y)")[4] == "a = tl.where(e, 1.0, y)"


def test_a_constant_that_is_assigned_twice_differently_stays_a_tensor():
    one = ["c = tl.full([1], 0.0, tl.float32)", "a = tl.where(m, x, c)"]
    assert simplified(*one)[1] == "a = tl.where(m, x, 0.0)"
    assert simplified("c = tl.full([1], 1.0, tl.float32)", *one)[2] == "a = tl.where(m, x, c)"


def test_a_size_that_is_divided_in_several_places_is_divided_once():
    function = ast.parse(
        "def kernel(p, width):\n    a = p + width // 8 * 2\n    b = width // 8 + width // 4\n"
    ).body[0]
    assert isinstance(function, ast.FunctionDef)
    divisors.quotients_named(function)
    assert [ast.unparse(s) for s in function.body] == [
        "width_over_8 = width // 8", "a = p + width_over_8 * 2", "b = width_over_8 + width // 4"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "statement",
    [
        "value = tl.load(pointer + (" + " + ".join(f"a_{i} * (b_{i} // 8)" for i in range(12)) + "), mask, other=0.0)",
        "total = " + " + ".join(f"a_rather_long_name_{i}" for i in range(12)),
        "tl.store(pointer + column, " + " * ".join(f"a_rather_long_name_{i}" for i in range(8)) + ", column_exists)",
        "both = " + " & ".join(f"(a_rather_long_name_{i} > 0)" for i in range(8)),
    ],
)  # fmt: skip
def test_a_long_line_is_broken_into_short_ones_that_say_the_same(statement: str):
    broken = lines.break_line("    " + statement)
    assert len(broken) > 1
    assert max(map(len, broken)) <= lines.WIDTH
    again = ast.parse("def f():\n" + "\n".join(broken)).body[0]
    assert ast.unparse(again.body[0]) == ast.unparse(ast.parse(statement))


def test_a_method_of_a_long_call_stays_its_method():
    line = f"        self.model = nn.Sequential({', '.join(f'nn.Linear({i}00, {i}00)' for i in range(1, 9))}).eval()"
    parts = lines.break_line(line)
    assert len(parts) > 1
    assert ast.dump(ast.parse("class A:\n    def f():\n" + "\n".join(parts))) == ast.dump(
        ast.parse("class A:\n    def f():\n" + line)
    )


def test_a_long_argument_of_a_call_is_broken_and_stays_an_argument():
    extent = " + ".join(f"some_long_name_{i} * another_{i}" for i in range(5))
    line = f"            ELEMENT_BLOCK=block_for({extent}, 1024),"
    parts = lines.break_line(line, 8)
    assert len(parts) > 1
    whole = ast.parse("f(\n" + "\n".join(parts) + "\n)", mode="eval").body
    assert ast.dump(whole) == ast.dump(ast.parse(f"f({line.strip()})", mode="eval").body)


def test_sizes_are_called_what_forward_calls_them():
    text = """
class Model(nn.Module):
    def forward(self, x, mask, index):
        batch, _, width = x.shape
        keys = mask.size(1)
        x = x.flatten()
        n = x.shape[0]
        (s0,) = index.shape
        return x, mask
def get_inputs():
    return []
def get_init_inputs():
    return []
"""
    names = ProblemText(text).forward_names()
    assert names == {"x.shape[0]": "batch", "x.shape[2]": "width", "mask.shape[1]": "keys"}


SHOWN = {
    "a weight in another order of memory": (
        "tmp0 = tl.load(in_ptr0 + (x1 + 3 * y0), ymask)\ntl.store(out_ptr0 + (y0 + 16 * x1), tmp0, ymask)",
        ("mul", "erf", "convolution"), evidence.COPY,
    ),
    "zeros": ("tmp0 = 0.0\ntl.store(out_ptr0 + x2, tmp0, xmask)", ("clamp_min", "sigmoid", "exp"), evidence.FILL),
    "one function of several": (
        "tmp0 = tl.load(in_ptr0 + x2 * 3, xmask)\ntmp1 = tl.sigmoid(tmp0)\ntl.store(out_ptr0 + x2, tmp1, xmask)",
        ("pow", "div", "sigmoid", "tanh"), ("sigmoid",),
    ),
    "a variance before a convolution": (
        "tmp0 = tl.load(in_ptr0 + r0_1, xmask)\ntmp1 = triton_helpers.welford_reduce(tmp0)\n"
        "tmp2 = tmp0 - tmp1\ntmp3 = tl.load(in_ptr1 + x0)\ntmp4 = tmp2 * tmp3",
        ("var_mean", "sub", "mul", "convolution"), ("var_mean", "sub", "mul"),
    ),
    "a convolution of means": (
        "tmp0 = tl.load(in_ptr0 + r0_1, xmask)\ntmp1 = tl.load(in_ptr1 + (r0_1 + 8 * x0))\ntmp2 = tmp0 / 49.0\n"
        "tmp3 = tmp2 * tmp1\ntmp4 = tl.sum(tmp3, 1)",
        ("mean", "convolution"), ("mean", "convolution"),
    ),
    "a gather": ("tmp0 = tl.load(in_ptr0 + x0)\ntl.store(out_ptr0 + x0, tmp0)", ("mul", "gather"), ("gather",)),
}  # fmt: skip


@pytest.mark.parametrize(("body", "operators", "shown"), SHOWN.values(), ids=SHOWN)
def test_a_kernel_is_named_by_what_it_computes(
    body: str, operators: tuple[str, ...], shown: tuple[str, ...]
):
    text = "def kernel(in_ptr0, in_ptr1, out_ptr0):\n" + "\n".join(
        f"    {line}" for line in body.split("\n")
    )
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert evidence.operators_shown(function, operators) == shown

"""Integers that wrap in 32 bits before they are added to a pointer, at the sizes of a launch."""

from __future__ import annotations

import textwrap

import pytest

from kernelwright.tools.compiling.text.address_overflow import overflow_failure
from kernelwright.tools.report import Fault
from kernelwright.tools.trace.trace import Function, Kernel, Launch, Trace, Traced

ROWS, COLUMNS = 600_000, 4096
TL = {"tl": {"triton": "triton.language"}}
HELPER = "def offset_of(row, columns):\n    return row * columns"
HEAD = "def scale(x, y, rows, columns, BLOCK: tl.constexpr):\n"


def judged(body, rows=ROWS, columns=COLUMNS, kind="i32"):
    """The failure and the warnings of a launch with `rows` programs."""
    text = HEAD + textwrap.indent(textwrap.dedent(body).strip(), "    ")
    functions = {
        "scale": Function(
            name="scale", text=text, names=TL | {"offset_of": {"function": "offset_of"}}
        ),
        "offset_of": Function(name="offset_of", text=HELPER, names=TL),
    }
    types = {"x": "*fp16", "y": "*fp16", "rows": "i32", "columns": kind, "BLOCK": "constexpr"}
    kernel = Kernel(function="scale", signature=types, constants=(((4,), 1024),))
    args = {"x": {"t": 0}, "y": {"t": 1}, "rows": rows, "columns": columns}
    launch = Launch(kernel="scale", grid=(rows, 1, 1), args=args)
    warnings = []
    traced = Traced(
        functions=functions, kernels={"scale": kernel}, traces=(Trace(first=(launch,)),)
    )
    return overflow_failure(traced, warnings), warnings


WRONG = {
    "row = tl.program_id(0)\ntl.store(y + row * columns, tl.load(x))": "row * columns",
    "base = x + tl.program_id(0) * columns": "tl.program_id(0) * columns",
    "at = tl.arange(0, BLOCK)\nat = at + columns * tl.program_id(0)\ntl.load(x + at)": "columns * tl.program_id(0)",
    "row = tl.program_id(0)\nrow *= columns\ntl.load(x + row)": "row * columns",
    "p = tl.program_id(0)\nfor k in range(0, columns, BLOCK):\n    tl.load(x + (p * columns + k))": "p * columns",
    "p = tl.program_id(0)\ntl.load(x + offset_of(p, columns))": "row * columns",
    "for r in range(rows):\n    tl.load(x + r * columns)": "r * columns",
    "at = (tl.program_id(0) * columns).to(tl.int64)\ntl.load(x + at)": "tl.program_id(0) * columns",
    "p = 4 * tl.program_id(0)\ntl.load(x + (p + tl.arange(0, 4))[:, None] * 2048)": (
        "(p + tl.arange(0, 4))[:, None] * 2048"
    ),
    "tl.load(x + tl.program_id(0) // 2 * 8192)": "tl.program_id(0) // 2 * 8192",
    "p = tl.program_id(0)\ntl.load(x + p // 8 * (8 * columns) + p % 8 * columns)": "p // 8 * (8 * columns)",
}


@pytest.mark.parametrize(("body", "expression"), WRONG.items())
def test_an_address_that_surely_wraps_is_a_failure_with_its_expression(body, expression):
    failure, _ = judged(body)
    assert failure is not None
    assert failure.fault is Fault.OUT_OF_BOUNDS
    assert failure.message.startswith(f"at the problem's own size {expression} reaches ")
    assert failure.where is not None


@pytest.mark.parametrize(
    "body",
    [
        "row = tl.program_id(0).to(tl.int64)\ntl.load(x + row * columns)",
        "row = tl.cast(tl.program_id(0), tl.int64)\ntl.load(x + row * columns)",
        "tl.load(x + columns * tl.program_id(0).to(tl.int64) + tl.arange(0, BLOCK))",
        "seed = tl.program_id(0) * 1664525 + 1013904223\ntl.store(y + tl.program_id(0), (seed % 97) * 1.0)",
        "tl.load(x + tl.program_id(0) % 1000 * columns)",
        "for first in range(0, 0):\n    tl.load(x + tl.program_id(0) * columns)",
    ],
)
def test_what_is_widened_first_or_never_reaches_an_address_is_fine(body):
    assert judged(body) == (None, [])


def test_an_argument_of_64_bits_widens_what_it_is_multiplied_with():
    assert judged("tl.load(x + tl.program_id(0) * columns)", kind="i64") == (None, [])


def test_the_same_kernel_is_fine_at_a_size_that_fits():
    assert judged("tl.load(x + tl.program_id(0) * columns)", rows=500_000) == (None, [])


@pytest.mark.parametrize(
    "body",
    [
        "row = tl.program_id(0)\nif row < 1000:\n    tl.load(x + row * columns)",
        "row = tl.program_id(0)\nif row >= 1000:\n    return\ntl.load(x + row * columns)",
        "row = tl.program_id(0)\ntl.load(x + (row * columns - row * (columns - 1)))",
    ],
)
def test_where_a_branch_or_a_common_operand_may_keep_it_small_it_is_a_warning(body):
    failure, warnings = judged(body)
    assert failure is None
    assert len(warnings) == 1
    assert "may reach 2,457,595,904" in warnings[0]


def test_a_text_that_is_no_function_is_left_to_the_compiler():
    functions = {"f": Function(name="f", text="x = 1", names=TL)}
    trace = Trace(first=(Launch(kernel="f", grid=(1, 1, 1)),))
    traced = Traced(
        functions=functions, kernels={"f": Kernel(function="f", signature={})}, traces=(trace,)
    )
    assert overflow_failure(traced, []) is None

"""The draws that a candidate's texts or a problem's inputs ask for: numbers that kernels name, inputs that meet; and
where a reference that rounds nothing leaves no room for jumps.
"""

import base64
import struct

import pytest
import torch

from kernelwright.tools.compiling.text.named_numbers import named_numbers
from kernelwright.tools.references.input_distributions import Draw, apply_draw, pairs_of_tensors
from kernelwright.tools.tracing.trace import Data, Function, Operator, Step, Trace, Traced


def named(text: str, *steps: Step) -> tuple[float, ...]:
    trace = Trace.model_construct(setup=(), first=steps, later=None)
    return named_numbers(Traced(functions={"k": Function(name="k", text=text)}), trace)


@pytest.mark.parametrize(
    "body",
    ["v > 0.75", "-0.75 < v", "tl.minimum(v, 0.75)", "v > 0.5 + 0.25", "v > 3 / 4", "v * 1.5 == -0.75"],
)
def test_what_a_text_compares_with_or_cuts_at_is_named(body: str) -> None:
    assert named(f"def k(v):\n    return {body}\n") == (0.75,)


def test_a_number_with_a_name_is_named_where_it_is_compared() -> None:
    text = "def k(v):\n    low = 0.5\n    high = low + 0.25\n    other = 7.0\n    return (v < high) * other\n"
    assert named(text) == (0.75,)


def test_numbers_that_are_no_bounds_are_not_named() -> None:
    assert named("def k(v):\n    return v * 0.044715 + 0.7978 + (v > 0.0)\n") == ()


def test_tensors_of_one_number_name_it() -> None:
    full = Operator(op="aten.full.default", args=([1], 0.75))
    data = Data(t=1, dtype="float32", shape=(2,), data=base64.b64encode(struct.pack("<2f", 0.5, 2.0)).decode())
    table = Data(t=2, dtype="float32", shape=(9,), data=base64.b64encode(struct.pack("<9f", *range(9))).decode())
    assert named("def k(): pass\n", full, data, table) == (0.5, 0.75, 2.0)


def test_two_inputs_of_one_shape_meet_and_so_do_a_matrix_and_a_row() -> None:
    x, y, row = torch.randn(64, 64), torch.randn(64, 64), torch.randn(64)
    assert [(a is row, b is y) for a, b in pairs_of_tensors([x, y, row])] == [
        (False, True),
        (True, False),
        (True, True),
    ]
    apply_draw(Draw.MEETING, [x, y])
    near = ((x - y).abs() < 1e-3) & (x != y)
    assert int((x == y).sum()) > 50
    assert int((x == -y).sum()) > 100
    assert int(near.sum()) > 50
    apply_draw(Draw.MEETING, [row, x])
    assert int((x == row).sum()) > 50

"""Outcomes of comparisons on data, as a replaying process tells them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelwright.tools.replaying.interpreter.comparisons.messages import (
    ToldComparison,
    read_comparisons,
)
from kernelwright.tools.trace.trace import Trace

BLOCK = 32
HEADER = "def k(x, y, n, BLOCK: tl.constexpr):\n    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
LOAD = "    v = tl.load(x + at, mask=at < n, other=0.0)\n"
STORE = "    tl.store(y + at, out, mask=at < n)\n"
FLOATS = torch.linspace(-2.0, 5.0, 100)


@pytest.fixture
def compared(bench: Any, write: Any) -> Any:
    """What a kernel's body compares on some numbers, a program for every 32 of them."""

    def run(
        body: str, numbers: torch.Tensor = FLOATS, loads: str = LOAD, programs: int = 4
    ) -> list[ToldComparison]:
        kernel = write.kernel(
            HEADER + loads + "".join(f"    {line}\n" for line in body.splitlines()) + STORE,
            {"x": "*fp32" if numbers.dtype == torch.float32 else "*i32", "y": "*fp32", "n": "i32"},
            BLOCK=BLOCK,
        )
        launch = write.launch("k", programs, x={"t": 0}, y={"t": 1}, n=len(numbers))
        trace = Trace(
            inputs=({"t": 0},),
            first=(write.empty(1, len(numbers)), launch),
            first_outputs=({"t": 1},),
        )
        bench.open(write.traced(trace, kernel))
        bench.replayer.ask({"do": "comparisons", "forget": "outcomes"}, seconds=30.0)
        bench.call([numbers], [numbers.float()])
        return read_comparisons(
            bench.replayer.ask({"do": "comparisons"}, seconds=30.0)["comparisons"]
        )

    return run


@pytest.mark.parametrize("programs", [4, 40])
def test_a_threshold_that_nothing_reaches_is_one_sided_and_tells_the_nearest_miss(
    compared: Any, programs: int
) -> None:
    (only,) = compared("out = tl.where(v > 7.0, 0.0, v)", programs=programs)
    assert (only.operator, only.true, only.false) == (">", False, True)
    assert only.nearest == (5.0, 7.0)
    assert only.constant == 7.0
    assert only.text == "out = tl.where(v > 7.0, 0.0, v)"


def test_both_outcomes_are_seen_where_numbers_lie_on_both_sides(compared: Any) -> None:
    (only,) = compared("out = tl.where(v > 1.0, 0.0, v)")
    assert (only.true, only.false) == (True, True)


def test_masks_of_offsets_against_extents_are_not_data(compared: Any) -> None:
    assert compared("out = tl.where(at > 7, 0.0, v)") == []


def test_lanes_that_are_masked_off_are_no_outcomes(compared: Any) -> None:
    loads = "    v = tl.load(x + at, mask=at < n, other=9.0)\n"
    (only,) = compared("out = tl.where(v * 1.0 > 7.0, 0.0, v)", loads=loads)
    assert (only.true, only.false) == (False, True)


def test_infinite_operands_are_no_outcomes(compared: Any) -> None:
    numbers = torch.cat([FLOATS, torch.tensor([float("inf"), float("nan")])])
    (only,) = compared("out = tl.where(v > 7.0, 0.0, v)", numbers)
    assert (only.true, only.nearest) == (False, (5.0, 7.0))


def test_minimum_and_clamp_are_comparisons(compared: Any) -> None:
    told = compared("out = tl.minimum(v, 9.0)\nout = tl.clamp(out, 1.0, 6.0)")
    assert [(c.operator, c.true, c.false) for c in told] == [
        ("min", False, True),
        ("max", True, True),
        ("min", False, True),
    ]


def test_a_conjunction_is_told_beside_its_parts(compared: Any) -> None:
    told = compared("out = tl.where((v > 1.0) & (v < 1.01), 0.0, v)")
    assert [(c.operator, c.true) for c in told] == [(">", True), ("<", True), ("and", False)]


def test_a_threshold_on_a_reduction_is_data(compared: Any) -> None:
    (only,) = compared("out = tl.where(tl.sum(v) > 1000.0, 0.0, v)")
    assert (only.true, only.false) == (False, True)


def test_bits_and_whole_numbers_are_compared_too(compared: Any) -> None:
    (bits,) = compared("out = tl.where(v.to(tl.int32, bitcast=True) > 0x41000000, 0.0, v)")
    assert (bits.true, bits.dtype) == (False, "int32")
    loads = "    v = tl.load(x + at, mask=at < n, other=0)\n"
    (whole,) = compared(
        "out = tl.where(v == 77, 0, v).to(tl.float32)", torch.arange(60, dtype=torch.int32), loads
    )
    assert (whole.true, whole.nearest) == (False, (59.0, 77.0))


def test_thresholds_of_an_unrolled_loop_are_told_apart(compared: Any) -> None:
    body = "out = v\nfor i in tl.static_range(3):\n    out = tl.where(v > 2.0 * (i + 1), 0.0, out)"
    assert [c.true for c in compared(body)] == [True, True, False]


def test_operations_of_the_builder_stand_for_operators() -> None:
    from kernelwright.tools.replaying.interpreter.comparisons.data_dependence import operator_of

    names = (
        "create_fcmpOLT",
        "create_icmpSGE",
        "create_maxnumf",
        "create_minui",
        "create_clampf",
        "create_fadd",
        "create_fmul",
    )
    assert [operator_of(name) for name in names] == ["<", ">=", "max", "min", "clamp", "+", ""]


@pytest.mark.parametrize("programs", [4, 40])
def test_an_addend_that_is_next_to_nothing_on_every_draw_is_one_sided(
    compared: Any, programs: int
) -> None:
    resonance = "t = (v - 100.0) * 1e6\nout = v + v / (1.0 + t * t)"
    sums = {one.operator: one for one in compared(resonance, programs=programs)}
    assert (sums["+"].true, sums["+"].false) == (True, False)
    assert sums["+"].text == "out = v + v / (1.0 + t * t)"
    assert not sums["- constant"].one_sided


def test_operands_of_a_sum_that_both_count_are_both_seen(compared: Any) -> None:
    sums = compared("out = v + v * v")
    assert [(one.operator, one.one_sided) for one in sums] == [("+", False)]


def test_a_constant_beside_which_data_is_next_to_nothing_is_one_sided(compared: Any) -> None:
    (only,) = compared("out = 1.0 + v * 1e-9")
    assert (only.operator, only.true) == ("+ constant", False)


@pytest.mark.parametrize("choice", ["tl.where(n % 96 == 0, 0.0, v)", "v if n % 96 else v * 2.0"])
def test_a_choice_by_an_argument_of_the_launch_is_followed(compared: Any, choice: str) -> None:
    comparisons = compared(f"out = {choice}")
    assert [(one.of_arguments, one.one_sided) for one in comparisons if one.operator == "=="] in (
        [(True, True)],
        [],
    )


def test_places_and_extents_are_no_choice_by_an_argument(compared: Any) -> None:
    assert (
        compared(
            "out = tl.where(tl.program_id(0) < n, v, 0.0)\nout = tl.where(at < tl.minimum(n, 7), out, v)"
        )
        == []
    )


def test_one_program_alone_is_followed(compared: Any) -> None:
    (only,) = compared("out = tl.where(v > 7.0, 0.0, v)", FLOATS[:20], programs=1)
    assert (only.true, only.false) == (False, True)

"""Results of operations on data that were one value in all calls, as a replaying process tells them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelwright.tools.replaying.interpreter.comparisons.messages import ToldResult, read_results
from kernelwright.tools.trace.trace import Trace

BLOCK = 32
HEADER = "def k(x, y, n, BLOCK: tl.constexpr):\n    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
LOAD = "    v = tl.load(x + at, mask=at < n, other={other})\n"
STORE = "    tl.store(y + at, out, mask=at < n)\n"
FLOATS = torch.linspace(-2.0, 5.0, 100)
TENTH = "d = v.to(tl.int32, bitcast=True) ^ 0x3DCCCCCD\nflag = ((d | -d) >> 31) & 1\n"
"""A flag that is 0 for the float nearest to 0.1 alone."""


@pytest.fixture
def constant_results(bench: Any, write: Any) -> Any:
    """Runs a kernel's body on some numbers, a program for every 32 of them; returns the results that never varied."""

    def run(
        body: str, numbers: torch.Tensor = FLOATS, other: str = "0.0", programs: int = 4
    ) -> list[ToldResult]:
        kernel = write.kernel(
            HEADER
            + LOAD.format(other=other)
            + "".join(f"    {line}\n" for line in body.splitlines())
            + STORE,
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
        return read_results(bench.replayer.ask({"do": "comparisons"}, seconds=30.0)["results"])

    return run


@pytest.mark.parametrize("programs", [1, 4, 40])
def test_a_flag_made_of_bits_is_told_with_its_line_value_and_constant(
    constant_results: Any, programs: int
) -> None:
    told = constant_results(f"{TENTH}out = v * flag.to(tl.float32)", programs=programs)
    assert [(result.operation, result.value, result.text) for result in told] == [
        ("ashr", -1.0, "flag = ((d | -d) >> 31) & 1")
    ]
    assert float(0x3DCCCCCD) in told[0].constants


def test_a_flag_that_took_both_values_is_not_told(constant_results: Any) -> None:
    numbers = FLOATS.clone()
    numbers[40] = 0.1
    assert constant_results(f"{TENTH}out = v * flag.to(tl.float32)", numbers) == []


def test_lanes_that_are_masked_off_do_not_count(constant_results: Any) -> None:
    told = constant_results(f"{TENTH}out = v * flag.to(tl.float32)", FLOATS[:90], other="0.1")
    assert [result.operation for result in told] == ["ashr"]


def test_calls_on_infinities_do_not_count(constant_results: Any) -> None:
    numbers = FLOATS.clone()
    numbers[41] = float("inf")
    assert (
        constant_results("out = (v.to(tl.int32, bitcast=True) & 0x7F800000) // 0x7F800000", numbers)
        == []
    )


def test_a_quotient_of_counts_is_told(constant_results: Any) -> None:
    body = "whole = (v == tl.floor(v)).to(tl.int32)\nshare = tl.sum(whole, axis=0) // n\nout = v * (1.0 - share)"
    told = constant_results(body)
    assert {(result.text, result.value) for result in told} == {
        ("share = tl.sum(whole, axis=0) // n", 0.0)
    }


def test_an_entry_of_a_table_that_is_gathered_by_the_exponent_is_told(
    constant_results: Any,
) -> None:
    body = (
        "e = (v.to(tl.int32, bitcast=True) >> 23) & 255\n"
        "table = tl.where(tl.arange(0, 256) < 50, 0.0, 1.0)\n"
        "out = v * tl.gather(table, e, 0)"
    )
    assert [(r.operation, r.value) for r in constant_results(body)] == [("gather", 1.0)]


def test_a_float_that_saturates_is_told(constant_results: Any) -> None:
    body = "size = tl.abs(v - 0.123) * 1e30\nout = v * (size / (size + 1e-30))"
    assert [(r.operation, r.value) for r in constant_results(body)] == [("fdiv", 1.0)]


def test_the_low_bits_of_an_address_are_told(constant_results: Any) -> None:
    body = "low = (x.to(tl.int64) & 1).to(tl.int32)\nout = v * (1.0 - 0.5 * low)"
    assert "and" in [result.operation for result in constant_results(body)]


def test_an_address_as_a_number_is_told(constant_results: Any) -> None:
    body = "place = x.to(tl.int64)\nout = v + 0.0 * (place * 3).to(tl.float32)"
    assert "ptr_to_int" in [result.operation for result in constant_results(body)]


@pytest.mark.parametrize(
    "body",
    [
        "out = tl.where(v != v, 0.0, v)",
        "sign = v.to(tl.int32, bitcast=True) >> 31\nout = (sign & 1).to(tl.float32)",
        "top = tl.max(v, axis=0)\nout = tl.exp(v - top) / tl.sum(tl.exp(v - top), axis=0)",
        "n2 = (v * 1.4426950408889634).to(tl.int32)\nout = ((n2 + 127) << 23).to(tl.float32, bitcast=True)",
        "tiles = tl.cdiv(n, 64)\nout = tl.load(x + (at % tiles) * 1, mask=at < n, other=0.0)",
    ],
)
def test_honest_arithmetic_on_bits_has_no_constant_results(
    constant_results: Any, body: str
) -> None:
    assert constant_results(body) == []

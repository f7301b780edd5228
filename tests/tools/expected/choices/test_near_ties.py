"""An index among near equals is right whichever it names; an index of another value is not."""

from __future__ import annotations

import pytest
import torch

from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.expected.choices.near_ties import IndexRecorder, is_as_good, naming_equals
from kernelwright.tools.expected.perturbed_outputs import outputs_of_perturbed_inputs
from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.report import Fault

REFERENCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 3
columns = 700


class Model(nn.Module):
    def forward(self, x):
        return F.silu(F.gelu(F.selu(F.softsign(x)))){method}


def get_inputs():
    return [torch.randn(rows, columns) - 0.5]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def {name}(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    x = tl.load(x_ptr + row * columns + cols, mask=mask, other=0.0)
    x = x / (1.0 + tl.abs(x))
    x = 1.0507009873554805 * tl.where(x > 0, x, 1.6732632423543772 * libdevice.expm1(x))
    x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    x = tl.where(mask, x * tl.sigmoid(x), float("inf"))
    index = tl.argmin(x, axis=0)
    {more}
    tl.store(out_ptr + row, index.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty({shape}, device=x.device, dtype=torch.int64)
        {name}[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
"""
SECOND = """x = tl.where(cols == index, float("inf"), x)
    x = tl.where(x < tl.min(x, axis=0) + 1e-3, float("inf"), x)
    index = tl.argmin(x, axis=0)"""
METHODS = {".argmin(dim=-1)": "x.shape[0]", ".min(1, keepdim=True)[1]": "x.shape[0], 1",
    ".argmin(1).unsqueeze(1)": "x.shape[0], 1"}  # fmt: skip


def judged(evaluator: Evaluator, method: str, more: str, times: int) -> list[Fault | None]:
    problem = Problem(name="near_ties", source=REFERENCE.format(method=method))
    texts = [
        KERNEL.format(name=f"smallest_{n}", more=more, shape=METHODS[method]) for n in range(times)
    ]
    reports = [evaluator.evaluate(problem, text, Options(torch_compile=False)) for text in texts]
    return [report.failure.fault if report.failure else None for report in reports]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_minimum_that_is_flat_may_be_found_at_any_of_its_places(evaluator, method):
    assert judged(evaluator, method, "", 6) == [None] * 6


def test_the_next_larger_value_is_no_near_equal(evaluator):
    assert judged(evaluator, ".argmin(dim=-1)", SECOND, 2) == [Fault.MISMATCH] * 2


def noted(values, take):
    recorder = IndexRecorder()
    with recorder.noting():
        found = take(values)
    return found, recorder.calls


@pytest.mark.parametrize(
    "take",
    [
        lambda x: x.argmax(0),
        lambda x: torch.argmax(x, dim=0, keepdim=True),
        lambda x: torch.max(x, 0).indices,
        lambda x: x.argmax(),
        lambda x: torch.argmax(input=x, dim=0)[None],
    ],
)
def test_indices_are_as_good_as_their_values(take):
    x = torch.rand(40, 6, dtype=torch.float64)
    x[7] = 1 + torch.arange(6)
    x[3] = x[7] + 1e-9
    expected, exact = noted(x, take)
    _, eager = noted(x.float(), take)
    near = 7 if expected.numel() > 1 else 7 * 6 + 5
    assert is_as_good(expected, expected, exact, eager)
    assert is_as_good(torch.full_like(expected, near), expected, exact, eager)
    assert not is_as_good(torch.full_like(expected, 5), expected, exact, eager)
    assert not is_as_good(expected + 40 * 6, expected, exact, eager)
    assert not is_as_good(-expected - 1, expected, exact, eager)
    assert not is_as_good(expected, expected + 1, exact, eager)


def test_of_exact_equals_the_first_is_asked_for_as_torch_documents_it():
    x = torch.zeros(2, 9, dtype=torch.float64)
    expected, calls = noted(x, lambda v: v.argmin(1))
    assert is_as_good(expected, expected, calls, calls)
    assert not is_as_good(expected + 1, expected, calls, calls)


def test_of_equals_topk_may_name_any_but_no_index_twice_and_no_worse_value() -> None:
    values = torch.tensor([[1.0, 3.0, 3.0, 0.5], [2.0, 2.0, 2.0, 2.0]])
    recorder, own = IndexRecorder(), IndexRecorder()
    with recorder.noting():
        expected = torch.topk(values.double(), 2, dim=-1).indices
    with own.noting():
        torch.topk(values, 2, -1)
    calls = recorder.calls, own.calls
    assert is_as_good(torch.tensor([[2, 1], [3, 0]]), expected, *calls)
    assert not is_as_good(torch.tensor([[1, 1], [3, 0]]), expected, *calls), "one index twice"
    assert not is_as_good(torch.tensor([[1, 0], [3, 0]]), expected, *calls), (
        "a value that is not among the largest two"
    )


def test_nothing_is_as_good_as_the_largest_of_what_nothing_rounds() -> None:
    x = torch.rand(40, 6)
    x[7] = 1.0
    x[3] = 1.0 - 2.0**-23
    recorder, own = IndexRecorder(), IndexRecorder()
    with recorder.noting():
        expected = x.double().argmax(0)
    with own.noting():
        x.argmax(0)
    assert not is_as_good(torch.full_like(expected, 3), expected, recorder.calls, own.calls)


@pytest.mark.parametrize("stable", [False, True])
def test_a_sort_puts_equals_in_any_order_unless_it_is_asked_to_be_stable(stable: bool) -> None:
    values = torch.tensor([[1.0, 3.0, 1.0, 0.5]])
    recorder = IndexRecorder()
    with recorder.noting():
        expected = torch.sort(values, dim=-1, stable=stable).indices
    turned, wrong = torch.tensor([[3, 2, 0, 1]]), torch.tensor([[3, 0, 1, 2]])
    assert is_as_good(expected, expected, recorder.calls, recorder.calls)
    assert is_as_good(turned, expected, recorder.calls, recorder.calls) is not stable
    assert not is_as_good(wrong, expected, recorder.calls, recorder.calls)


@pytest.mark.parametrize("last", [False, True])
def test_topk_names_the_first_or_the_last_of_equals_where_it_is_asked_to(last: bool) -> None:
    values = torch.tensor([[1.0, 3.0, 3.0, 0.5], [2.0, 2.0, 2.0, 2.0]])
    with naming_equals(last) as naming:
        best, at = torch.topk(values, 2, dim=-1)
        worst = values.topk(1, -1, largest=False).indices
    assert at.tolist() == ([[2, 1], [3, 2]] if last else [[1, 2], [0, 1]])
    assert torch.equal(best, values.gather(-1, at))
    assert worst.tolist() == [[3], [3 if last else 0]]
    assert naming.seen == 2


def test_what_follows_from_the_choice_among_equals_is_let_pass() -> None:
    source = REFERENCE.format(method="").replace("return F.silu(F.gelu(F.selu(F.softsign(x))))",
        "return F.one_hot(torch.topk(x, 2, dim=-1).indices, columns).sum(1).float()")  # fmt: skip
    prepared = prepare_problem(Problem(name="load", source=source), "cpu", 1)
    expected = expected_outputs(prepared, Draw.ZERO_ROWS, 5)
    (moved,) = outputs_of_perturbed_inputs(prepared, expected)
    for last in (False, True):
        with naming_equals(last):
            (answer,) = prepared.reference.run(prepared.model, expected.inputs, 5)
        assert bool(((answer - expected.exact[0]).abs() <= (moved - expected.exact[0]).abs()).all())

"""References whose forward takes tensors inside of lists, tuples and dictionaries."""

from __future__ import annotations

import pytest

from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import Fault
from tests.copied_references import candidate

TEXT = """
import collections
import torch
import torch.nn as nn

rows = 24
Pair = collections.namedtuple("Pair", "left right")


class Model(nn.Module):
    def forward(self, parts, table):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
INPUTS = "[torch.randn(rows, 7), (torch.randn(rows, 5), 2)], {'scale': torch.randn(rows, 1), 'none': None}"
JOINED = "return torch.cat([parts[0], parts[1][0] * parts[1][1]], 1) * table['scale']"
GIVEN_BACK = "table['scale'].mul_(2.0)\n        return parts[0]"
ITSELF = ("return copied(super().forward(*args, **kwargs))",
          "made = super().forward(*args, **kwargs)\n        copied(made)\n        return made")  # fmt: skip
OPTIONS = Options(profile=False, torch_compile=False, own_work="report", sizes=2)


def problem(body: str, inputs: str = INPUTS) -> Problem:
    return Problem(name="nested", source=TEXT.format(body=body, inputs=inputs))


def copy_with(body: str, *, itself: bool = False) -> str:
    """A candidate that computes this, and gives back what a kernel has copied; with `itself` what it had before."""
    text = candidate(problem(body), "unchanged")
    return text.replace(*ITSELF) if itself else text


@pytest.mark.parametrize("body", [JOINED, GIVEN_BACK])
def test_a_copy_is_right_that_takes_and_changes_tensors_inside_of_lists_and_dictionaries(
    evaluator, body
):
    report = evaluator.evaluate(problem(body), copy_with(body), OPTIONS)
    assert report.correct, report.failure


@pytest.mark.parametrize(("reference", "body", "fault", "told"), [
    (JOINED, JOINED.replace("* parts[1][1]", ""), Fault.MISMATCH, "120 of"),
    (JOINED, "parts[1][0].mul_(1.5)\n        " + JOINED, Fault.MUTATION, "input 0[1][0]"),
    (JOINED, f"made = {JOINED.removeprefix('return')}\n        table['scale'].zero_()\n        return made",
     Fault.MUTATION, "input 1[scale] is changed"),
    (GIVEN_BACK, "return parts[0]", Fault.MISMATCH, "24 of"),
    ("return parts[0] * 1.0", "return parts[0].mul_(1.0)", Fault.ALIAS, "shares memory with input 0[0]"),
])  # fmt: skip
def test_what_is_wrong_with_a_tensor_inside_of_an_argument_is_found_and_named(
    evaluator, reference, body, fault, told
):
    text = copy_with(body, itself=fault is Fault.ALIAS)
    failure = evaluator.evaluate(problem(reference), text, OPTIONS).failure
    assert failure is not None
    assert (failure.fault, told in failure.message) == (fault, True), failure.message


def test_a_named_tuple_of_tensors_is_refused_in_one_line(evaluator):
    named = problem("return parts.left + parts.right", "Pair(torch.randn(3), torch.randn(3)), {}")
    with pytest.raises(
        ProblemError,
        match=r"tensors inside a Pair \(input 0\): use lists, tuples, and dictionaries",
    ):
        evaluator.evaluate(named, copy_with("return parts[0]"), OPTIONS)

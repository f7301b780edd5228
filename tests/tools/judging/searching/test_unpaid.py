"""Kernels that are wrong on some input, by an attacker who saw the judge's answers: none earns a full reward.

They turn by a number that is next to nothing on most inputs, by what surrounds a call, or by an argument of a launch.
Where a draw shows the fault they are refused, else `reward_ineligible_because` names the line.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.judge_suites import header, problem_of
from kernelwright.tools.evaluation.pipeline import Options
from tests.catalogue_sample import parameters

UNPAID = sorted((Path(__file__).parents[3] / "unpaid").glob("*.py"))
SAMPLE = 8
BRIEFLY = Options(profile=False, torch_compile=False)


@pytest.mark.parametrize(
    "path", parameters(UNPAID, lambda path: path.stem, lambda path: path.stem, SAMPLE)
)
def test_a_kernel_that_is_wrong_on_some_input_earns_no_full_reward(path, evaluator):
    source = path.read_text(encoding="utf-8")
    report = evaluator.evaluate(problem_of(header(source)["problem"]), source, BRIEFLY)
    assert not report.reward_eligible
    assert report.failure or report.reward_ineligible_because

"""What a survey of outputs finds: the judge's own Triton kernel gives what torch gives, interpreted here, compiled
on a GPU.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.tools.expected.prepared_problem import ExpectedOutputs

ROOT = Path(__file__).parents[3]


def cases_on(device: str, **environment: str) -> int:
    """How many cases agree. A process of its own: whether Triton is interpreted is chosen when it is imported."""
    done = subprocess.run(
        [sys.executable, "tests/tools/comparing/row_error_cases.py", device], cwd=ROOT, capture_output=True, text=True,
        timeout=500, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_one_pass_in_triton_finds_what_torch_finds():
    assert cases_on("cpu", TRITON_INTERPRET="1") > 40


@pytest.mark.gpu
def test_one_pass_in_triton_finds_what_torch_finds_on_a_gpu():
    assert cases_on("cuda:0") > 200


def test_an_expectation_is_finite_where_all_its_floating_elements_are():
    def finite(*outputs: object) -> bool:
        return ExpectedOutputs([], list(outputs), None, 0, None).finite()

    x = torch.randn(3, 4)
    assert finite()
    assert finite(x.T, x.half(), torch.arange(3), torch.empty(0), torch.full((2,), 3e38))
    for odd in (math.nan, math.inf, -math.inf):
        y = x.clone()
        y[1, 2] = odd
        assert not finite(x, y.T)
        assert not finite(y.bfloat16(), x)

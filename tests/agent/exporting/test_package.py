"""A package of a judged kernel: its own tests, its operator, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.agent.exporting.hf_kernel import hf_kernel_files
from kernelwright.agent.exporting.package import package_files, write_package
from kernelwright.agent.exporting.packaged_kernel import (
    PackagedKernel,
    package_kernel,
    stem_of,
    with_distinct_names,
)
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.errors import InputError
from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem

GOOD = Path(__file__).parents[2] / "kernels" / "good"
SCALED = """
import torch
import torch.nn as nn

rows = 64


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))
        self.drop = nn.Dropout(0.5)

    def forward(self, x, pair, factor=2.0):
        return {"sum": self.drop(x * self.scale + pair[0]), "pair": [x * factor, None]}


def get_inputs():
    return [torch.randn(rows, 16), (torch.randn(rows, 16), 3)]


def get_init_inputs():
    return [16]
"""
SCALED_KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def both(x, scale, added, total, doubled, n, width, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n)
    tl.store(total + at, v * tl.load(scale + at % width, at < n) + tl.load(added + at, at < n), at < n)
    tl.store(doubled + at, v * 2.0, at < n)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x, pair, factor=2.0):
        total, doubled = torch.empty_like(x), torch.empty_like(x)
        n = x.numel()
        both[(triton.cdiv(n, 256),)](x, self.scale, pair[0], total, doubled, n, x.shape[1], BLOCK=256)
        return {"sum": total, "pair": [doubled, None]}
"""


@pytest.fixture(scope="module")
def scaled(evaluator) -> PackagedKernel:
    problem = Problem(name="scaled sum.py", source=SCALED)
    report = evaluator.evaluate(problem, SCALED_KERNEL, Options())
    assert report.correct, report.explanation
    return package_kernel(problem, SCALED_KERNEL, report)


@pytest.fixture(scope="module")
def silu(evaluator) -> PackagedKernel:
    problem, source = find_by_name("fused_silu"), (GOOD / "fused_silu.py").read_text()
    return package_kernel(problem, source, evaluator.evaluate(problem, source, Options()))


def run_python(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python in a package's folder, as its user does."""
    path = f"{folder / 'src'}:{os.environ.get('PYTHONPATH', '')}"
    variables = {**os.environ, "PYTHONPATH": path, **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.slow
def test_the_tests_of_a_package_pass(scaled, silu, tmp_path):
    write_package(tmp_path / "two", "two_kernels", [scaled, silu])
    tests = run_python(tmp_path / "two", "-m", "pytest", "-q", "-n", "0", "tests")
    assert tests.returncode == 0, tests.stdout[-3000:]
    assert "8 passed" in tests.stdout, tests.stdout[-500:]


CALLS = """
import torch
from two_kernels.scaled_sum import OPERATOR, ScaledSum

torch.manual_seed(0)
module = ScaledSum(16).eval()
reference = super(ScaledSum, module).forward
x, pair = torch.randn(5, 16), (torch.randn(5, 16), 3)


def refusal(*inputs, context=torch.no_grad(), **named):
    OPERATOR.refusal = "reference"
    with context:
        actual, expected = module(*inputs, **named), reference(*inputs, **named)
    torch.testing.assert_close(actual["sum"], expected["sum"])
    torch.testing.assert_close(actual["pair"][0], expected["pair"][0])
    return OPERATOR.refusal


assert refusal(x, pair) == ""
assert refusal(x.t().contiguous().t(), pair) == ""
assert refusal(x, pair, 3.0) == refusal(x, pair, factor=3.0) == "reference"
assert refusal(x, pair, factor=2.0) == ""
assert refusal(x.double(), (pair[0].double(), 3)) == "reference"
assert refusal(x, (pair[0][:1], 3)) == "reference"
assert refusal(x, (pair[0], 4)) == "reference"
OPERATOR(x.double(), pair[0].double(), OPERATOR.weights(module), module._constructor)
assert "float64" in OPERATOR.refusal
assert refusal(x, pair, context=torch.autocast("cpu")) == "reference"
assert refusal(x, pair, context=torch.enable_grad()) == "reference"
module.train()
OPERATOR.refusal = "reference"
with torch.no_grad():
    module(x, pair)
assert OPERATOR.refusal == "reference"
x.requires_grad_()
output = OPERATOR(x, pair[0], OPERATOR.weights(module), module._constructor)[0]
[gradient] = torch.autograd.grad(output.sum(), x)
torch.testing.assert_close(gradient, module.scale.detach().expand_as(x))
print("all calls are right")
"""


@pytest.mark.slow
def test_calls_outside_of_the_contract_run_the_reference(scaled, tmp_path):
    write_package(tmp_path / "two", "two_kernels", [scaled])
    (tmp_path / "two" / "calls.py").write_text(CALLS)
    calls = run_python(tmp_path / "two", "calls.py", TRITON_INTERPRET="1")
    assert "all calls are right" in calls.stdout, calls.stderr[-3000:]


def test_the_files_say_what_the_verdict_says(silu):
    files = package_files("silu_kernel", [silu])
    assert "not run on a GPU" in files["README.md"]
    verdict = json.loads(files["src/silu_kernel/fused_silu/verdict.json"])
    assert verdict["correct"] is True
    for path, text in files.items():
        if path.endswith(".py"):
            compile(text, path, "exec")


def test_the_repository_of_a_hub_kernel_names_its_module(silu):
    files = hf_kernel_files("silu_kernel", [silu])
    metadata = json.loads(files["build/torch-universal/metadata.json"])
    assert metadata["id"].isidentifier()
    assert metadata["name"] == "silu-kernel"
    assert "library_name: kernels" in files["CARD.md"]


def test_a_folder_that_holds_files_is_not_written_to(silu, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="--out"):
        write_package(tmp_path, "silu_kernel", [silu])


def test_a_package_needs_a_python_name(silu, tmp_path):
    with pytest.raises(InputError, match="--name"):
        write_package(tmp_path / "new", "silu-kernel", [silu])


def test_an_incorrect_kernel_is_not_packaged(silu):
    report = silu.report.with_(correct=False)
    with pytest.raises(InputError, match="cannot be packaged"):
        package_kernel(silu.problem, silu.text, report)


def test_names_of_problems_become_python_names(silu):
    assert stem_of("models/block.py") == "block"
    assert stem_of("block.py:Wide Block") == "block_wide_block"
    assert stem_of("kernelbench:1/23") == "kernel_23"
    assert [kernel.name for kernel in with_distinct_names([silu, silu])] == [
        "fused_silu",
        "fused_silu_2",
    ]

"""The state dict of a user's own module goes into the kernel that stands in for it."""

from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright.agent.contracts.guarded import guarded_kernel
from kernelwright.agent.problems.entry_points.entry_problems import reference_of_object
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import CorrectnessResult, Report

OWN = """import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.model = nn.Linear(width, width)
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x):
        return torch.sigmoid(self.model(x)) * self.scale


def build_gate(width):
    return Gate(width)


gate = BUILD(16)
y = gate(torch.randn(4, 16))
"""


def kernel_of(problem: Problem) -> type[nn.Module]:
    """ModelNew of a written file, whose kernel is the reference's text."""
    stage = CorrectnessResult(device="cpu", interpreted=True)
    report = Report(
        problem="p",
        problem_hash="h",
        candidate_hash="c",
        correct=True,
        judged_on="cpu",
        interpreted=stage,
    )
    written = guarded_kernel(
        problem, problem.source.replace("class Model(", "class ModelNew("), report
    )
    assert written.is_enforced, written.lines
    names: dict[str, object] = {"__name__": "kernel_file"}
    exec(compile(written.text, "kernel_file.py", "exec"), names)
    return names["ModelNew"]


def gate_of(tmp_path: Path, build: str) -> tuple[Problem, nn.Module]:
    path = tmp_path / "gate.py"
    path.write_text(OWN.replace("BUILD", build))
    names: dict[str, object] = {"__name__": "gate"}
    exec(compile(path.read_text(), "gate.py", "exec"), names)
    return find_by_name(str(path)), names["Gate"](16)


def linear_of(_: Path) -> tuple[Problem, nn.Module]:
    text = reference_of_object("torch.nn:Linear", ["16", "8"], ["input=4x16"])
    return Problem(name="torch.nn:Linear", source=text), nn.Linear(16, 8)


CASES = {
    "a class of the file": lambda path: gate_of(path, "Gate"),
    "a module that a function builds": lambda path: gate_of(path, "build_gate"),
    "a class of an installed package": linear_of,
}


@pytest.mark.parametrize("case", CASES)
def test_the_kernel_takes_the_state_dict_of_the_users_module_as_it_is(case, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    problem, mine = CASES[case](tmp_path)
    names: dict[str, object] = {"__name__": "reference"}
    exec(compile(problem.source, "reference.py", "exec"), names)
    init = names["get_init_inputs"]()
    kernel = kernel_of(problem)(*init)
    kernel.load_state_dict(mine.state_dict())
    x = torch.randn(4, 16)
    with torch.no_grad():
        torch.testing.assert_close(kernel(x), mine(x))
    outer, theirs = nn.Sequential(kernel_of(problem)(*init)), nn.Sequential(mine)
    outer.load_state_dict(theirs.state_dict())
    again = kernel_of(problem)(*init)
    again.load_state_dict(kernel.state_dict())
    for loaded in (outer[0], again):
        assert all(
            torch.equal(a, b) for a, b in zip(loaded.parameters(), mine.parameters(), strict=True)
        )

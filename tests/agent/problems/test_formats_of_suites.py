"""Problems in the formats of other suites: definitions, leaderboard tasks, cases and configurations in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kernelwright.agent.problems.finding import find_by_name, load_suite, unreadable
from kernelwright.tools.problem import Problem, ProblemError, inner_integers, module_integers

DEFINITION = {
    "name": "scaled_product",
    "axes": {
        "M": {"type": "var"},
        "K": {"type": "const", "value": 48},
        "half": {"type": "expr", "expression": "K // 2"},
    },
    "inputs": {
        "a": {"shape": ["M", "K"], "dtype": "float16"},
        "chosen": {"shape": ["half"], "dtype": "int64"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"c": {"shape": ["M", "half"], "dtype": "float16"}},
    "reference": "import torch\n\ndef run(a, chosen, scale):\n    return a[:, chosen] * scale\n",
}
WORKLOAD = {
    "axes": {"M": 5},
    "inputs": {"a": {"type": "random"}, "scale": {"type": "scalar", "value": 2.0}},
}
TASK = """
tests:
  - {"size": 12, "seed": 42}
  - {"size": 1200, "seed": 43}
benchmarks:
  - {"size": 4096, "seed": 44}
"""
REFERENCE = """
from utils import make_match_reference, DeterministicContext
import torch
from task import input_t, output_t


def ref_kernel(data: input_t) -> output_t:
    with DeterministicContext():
        a, out = data
        out[...] = a * 2
        return out


def generate_input(size: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    a = torch.randn(size, size, device="cuda", generator=gen)
    return a, torch.empty_like(a)


check_implementation = make_match_reference(ref_kernel)
"""
GROUPS = """
import json
import os
import torch


class Model(torch.nn.Module):
    def forward(self, x, alpha):
        return x * alpha


def get_input_groups():
    json_path = os.path.join(os.path.dirname(__file__), "scaled.json")
    with open(json_path, "r") as f:
        cases = [json.loads(line) for line in f if line.strip()]
    return [[torch.randn(c["inputs"][0]["shape"]), c["inputs"][1]["value"]] for c in cases]


def get_init_inputs():
    return []
"""
CONFIGURED = """
import torch


class Model(torch.nn.Module):
    def __init__(self, width: int, slope: float):
        super().__init__()
        self.weight, self.slope = torch.nn.Parameter(torch.ones(width)), slope

    def forward(self, x):
        return x * self.weight * self.slope


def get_inputs(rows: int = 4096, width: int = 4096):
    return [torch.randn(rows, width)]
"""


def inputs_and_answer(problem: Problem) -> tuple[list, torch.Tensor]:
    """What the reference draws, and what it gives for it."""
    names: dict = {"__name__": "reference", "__builtins__": __builtins__}
    exec(compile(problem.source, "reference", "exec"), names)
    init, inputs = names["get_init_inputs"](), names["get_inputs"]()
    model = names["Model"](**init) if isinstance(init, dict) else names["Model"](*init)
    return inputs, model(*inputs)


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    (tmp_path / "product").mkdir()
    (tmp_path / "product" / "definition.json").write_text(json.dumps(DEFINITION))
    (tmp_path / "product" / "workload.jsonl").write_text(json.dumps(WORKLOAD) + "\n")
    return tmp_path


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "doubled").mkdir()
    (tmp_path / "doubled" / "reference.py").write_text(REFERENCE)
    (tmp_path / "doubled" / "task.yml").write_text(TASK)
    return tmp_path


def test_a_definition_becomes_a_problem_at_the_sizes_of_its_first_workload(definition):
    problem = find_by_name(definition / "product")
    (a, chosen, scale), answer = inputs_and_answer(problem)
    assert (a.shape, a.dtype, chosen.shape, scale) == ((5, 48), torch.float16, (24,), 2.0)
    assert set(chosen.tolist()) <= set(range(5))
    assert torch.equal(answer, a[:, chosen] * 2.0)
    assert module_integers(problem.source) == {"M": 5, "K": 48}


def test_a_trace_set_keeps_definitions_and_workloads_apart(tmp_path):
    (tmp_path / "definitions" / "gemm").mkdir(parents=True)
    (tmp_path / "workloads" / "gemm").mkdir(parents=True)
    (tmp_path / "definitions" / "gemm" / "scaled_product.json").write_text(json.dumps(DEFINITION))
    row = json.dumps({"definition": "scaled_product", "workload": WORKLOAD})
    (tmp_path / "workloads" / "gemm" / "scaled_product.jsonl").write_text(row)
    assert [module_integers(p.source)["M"] for p in load_suite(str(tmp_path))] == [5]


def test_a_definition_without_what_it_needs_says_what_to_add(definition):
    (definition / "product" / "workload.jsonl").unlink()
    with pytest.raises(
        ProblemError, match=r"its scalar scale has no value: give one in a workload.jsonl"
    ):
        find_by_name(definition / "product" / "definition.json")
    assert "scaled_product: its scalar scale has no value" in unreadable(definition)[0]


def test_a_task_of_a_leaderboard_becomes_a_problem_without_its_seed_and_device(task):
    problem = find_by_name(task / "doubled")
    (a, _), answer = inputs_and_answer(problem)
    assert a.shape == (12, 12)
    assert torch.equal(answer, a * 2)
    assert not [word for word in ("cuda", "manual_seed", "from utils") if word in problem.source]
    assert module_integers(problem.source) == {"size": 12}
    assert problem.source.splitlines()[10] == REFERENCE.splitlines()[10]
    assert (
        [p.name for p in load_suite(str(task))]
        == ["doubled"]
        == [find_by_name(task / "doubled" / "reference.py").name]
    )


def test_a_task_whose_first_test_lacks_a_size_says_so(task):
    (task / "doubled" / "task.yml").write_text("tests:\n  - {seed: 1}\n")
    with pytest.raises(ProblemError, match=r"doubled: its first test does not say size"):
        find_by_name(task / "doubled")


def test_the_first_case_of_some_size_becomes_the_inputs(tmp_path):
    (tmp_path / "scaled.py").write_text(GROUPS)
    with pytest.raises(ProblemError, match=r"reads scaled.json: put that file beside it"):
        find_by_name(tmp_path / "scaled.py")
    cases = [
        {"inputs": [{"shape": [1, 2]}, {"value": 1}]},
        {"inputs": [{"shape": [64, 17]}, {"value": 3}]},
    ]
    (tmp_path / "scaled.json").write_text("\n".join(map(json.dumps, cases)))
    problem = find_by_name(tmp_path / "scaled.py")
    (x, alpha), answer = inputs_and_answer(problem)
    assert (x.shape, alpha) == ((64, 17), 3)
    assert torch.equal(answer, x * 3)
    assert module_integers(problem.source) == {"size_64": 64, "size_17": 17}


def test_a_configuration_beside_a_module_says_its_arguments(tmp_path):
    (tmp_path / "func_scale.py").write_text(CONFIGURED)
    config = {"single_input_configs": [{"rows": 6}], "single_init_configs": [{"slope": 0.5}],
              "single_shared_configs": [{"width": 10}], "multi_input_configs": [{"rows": 7}]}  # fmt: skip
    (tmp_path / "config_scale.json").write_text(json.dumps(config))
    problem = find_by_name(tmp_path / "func_scale.py")
    (x,), answer = inputs_and_answer(problem)
    assert x.shape == (6, 10)
    assert torch.equal(answer, x * 0.5)
    assert module_integers(problem.source) == {"rows": 6, "width": 10}


def test_defaults_that_the_file_does_not_pass_are_sizes_too(tmp_path):
    text = CONFIGURED.replace("slope: float", "slope: float = 0.5, longest: int = 4096")
    (tmp_path / "scale.py").write_text(text + "\n\ndef get_init_inputs():\n    return [4096]\n")
    problem = find_by_name(tmp_path / "scale.py")
    assert "return [4096, 0.5, 4096]" in problem.source
    assert "Model.longest" in inner_integers(problem.source)

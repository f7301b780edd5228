"""A script as users run it is a problem: its command line, its guards, and its own line numbers in every error."""

from __future__ import annotations

import json
import sys

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.source_lines import origin_of_line, without_directives
from kernelwright.tools.problem import ProblemError, inner_integers, module_integers
from kernelwright.tools.reference_trials.eval_mode import in_eval_mode
from kernelwright.tools.reference_trials.worker import try_reference
from kernelwright.tools.references.dry_run import load_for_dry_run
from tests.agent.command_in_process import agent_here

HEAD = """import argparse
import sys

import click
import torch
from torch import nn

"""
ARGPARSE = """
parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=24)
parser.add_argument("--device", default="cuda")
args = parser.parse_args()
"""
BLOCK = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        # comments and blank lines count

        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.layer(x))

"""
SCRIPTS = {
    "argparse": ARGPARSE
    + BLOCK
    + "x = torch.randn(6, args.width, device=args.device)\nprint(Block(args.width)(x))\n",
    "argparse that the class reads": ARGPARSE
    + BLOCK.replace("nn.Linear(width, width)", "nn.Linear(args.width, width)")
    + "model = Block(8)\nmodel(torch.randn(6, args.width))\n",
    "argparse in a function": "def get_args():"
    + ARGPARSE.replace("\n", "\n    ").replace("args = ", "return ")
    + BLOCK
    + "args = get_args()\nprint(Block(args.width)(torch.randn(3, args.width)).shape)\n",
    "a guard that exits": 'if not torch.cuda.is_available():\n    print("needs a GPU")\n    sys.exit(1)\n'
    + BLOCK
    + "Block(8)(torch.randn(2, 8).cuda())\n",
    "a guard that raises": 'if torch.cuda.device_count() < 1:\n    raise SystemExit("no GPU")\n'
    + "assert torch.cuda.is_available()\n"
    + BLOCK
    + "Block(8)(torch.randn(2, 8).cuda())\n",
    "a guard that chooses the device": "if torch.cuda.is_available():\n    device = 'cuda'\nelse:\n    sys.exit(1)\n"
    + BLOCK
    + "Block(8).to(device)(torch.randn(2, 8).to(device))\n",
    "all three functions and a guard": "if not torch.cuda.is_available():\n    import os\n    os._exit(1)\n"
    + BLOCK.replace("Block", "Model")
    + "def get_inputs():\n    return [torch.randn(2, 8)]\n\n\ndef get_init_inputs():\n    return [8]\n",
    "click": BLOCK
    + '@click.command()\n@click.option("--batch-size", default=16)\n@click.option("--width", default=8)\n'
    + "def run(batch_size, width):\n    model = Block(width).cuda()\n"
    + '    print(model(torch.randn(batch_size, width, device="cuda")))\n\n\nif __name__ == "__main__":\n    run()\n',
    "defaults of main": BLOCK
    + "def main(rows: int = 4, width=8):\n    model = Block(width)\n    return model(torch.randn(rows, width))\n",
}


@pytest.fixture
def problem_of(tmp_path):
    def read(text: str, name: str = "script.py"):
        (tmp_path / name).write_text(text)
        return find_by_name(tmp_path / name)

    return read


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_with_a_command_line_is_run_without_arguments(problem_of, name, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["agent", "solve", "script.py", "--width", "7000"])
    problem = problem_of(HEAD + SCRIPTS[name])
    try_reference(problem)
    with load_for_dry_run(problem.source) as module:
        [x] = module.get_inputs()
    assert x.shape[-1] in (8, 24)
    assert sys.argv == ["agent", "solve", "script.py", "--width", "7000"]


def test_a_parser_that_needs_arguments_is_told_with_its_own_words(problem_of):
    text = HEAD + SCRIPTS["argparse"].replace("default=24", "required=True")
    with pytest.raises(
        ProblemError,
        match=r"line 12: argparse: the following arguments are required: --width: give",
    ):
        try_reference(problem_of(text))


FAILING = {
    "in forward": ("torch.relu(self.layer(x))", "torch.relu(self.layer(x)) + self.missing"),
    "in __init__": ("nn.Linear(width, width)", "nn.Linear(width, width).missing"),
    "in get_inputs": ("torch.randn(6, args.width", "torch.randn(6, args.missing"),
    "in get_init_inputs": ("Block(args.width)(x)", "Block(args.missing)(x)"),
}


@pytest.mark.parametrize("function", FAILING)
def test_an_error_has_the_line_of_the_users_file(problem_of, function):
    before, after = FAILING[function]
    text = HEAD + SCRIPTS["argparse"]
    assert before in text
    text = text.replace(before, after)
    number = next(n for n, line in enumerate(text.splitlines(), start=1) if "missing" in line)
    with pytest.raises(ProblemError) as refused:
        try_reference(problem_of(text))
    assert f"the reference script.py fails {function}, line {number}: AttributeError" in str(
        refused.value
    )


def test_an_error_in_an_imported_file_names_that_file(problem_of, tmp_path):
    (tmp_path / "layers.py").write_text(
        "import torch\n\n\ndef unused(x):\n    return x\n\n\ndef act(x):\n    return x.no\n"
    )
    text = HEAD.replace("import click", "from layers import act") + BLOCK.replace(
        "torch.relu", "act"
    )
    problem = problem_of(text + "Block(4)(torch.randn(2, 4))\n")
    with pytest.raises(ProblemError, match=r"fails in act, line 9 of layers\.py: AttributeError"):
        try_reference(problem)
    problem = problem_of(text + "Block(4)(torch.randn(2, 4) @ torch.randn(9, 9))\n")
    last = len(text.splitlines()) + 1
    with pytest.raises(ProblemError, match=rf"fails in get_inputs, line {last}: "):
        try_reference(problem)


def test_an_imported_file_that_is_not_python_is_named(problem_of, tmp_path):
    (tmp_path / "layers.py").write_text("def act(x):\n    return (x\n")
    with pytest.raises(
        ProblemError, match=r"layers\.py, which it imports: the reference is not Python at line 2"
    ):
        problem_of("from layers import act\n" + BLOCK)


def test_an_error_in_a_notebook_names_the_cell(problem_of):
    cells = [
        "import torch\nfrom torch import nn\n",
        BLOCK.replace("self.layer(x)", "self.no(x)").lstrip(),
        "Block(4)(torch.randn(2, 4))",
    ]
    book = {"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4}
    with pytest.raises(
        ProblemError, match=r"fails in forward, line 9 of code cell 2: AttributeError"
    ):
        try_reference(problem_of(json.dumps(book), "book.ipynb"))


def test_lines_stay_where_sizes_change_and_in_eval_mode(problem_of):
    text = (
        "import torch\nfrom torch import nn\n\n# sizes\nA, B = 8, \\\n    16\nC = D = 4\n\n\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        for n in range(2):\n            pass\n"
        "    # what follows\n\n    def forward(self, x):\n        return x.missing\n\n\n"
        "def get_inputs():\n    return [torch.randn(A, B, C, D)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    problem = problem_of(text)
    wanted = text.splitlines().index("        return x.missing") + 1
    sizes = {"A": 3, "B": 5, "C": 7, "D": 9}
    for changed in (
        problem.with_sizes(sizes),
        in_eval_mode(problem),
        in_eval_mode(problem).with_sizes(sizes),
    ):
        number = changed.source.splitlines().index("        return x.missing") + 1
        assert origin_of_line(changed.source, number).number == wanted
    assert module_integers(problem.with_sizes(sizes).source) == sizes
    assert len(problem.with_sizes(sizes).source.splitlines()) == len(text.splitlines())


def test_integers_without_a_name_change_in_their_lines(problem_of):
    problem = problem_of(HEAD + BLOCK + "# a comment\nBlock(8)(torch.randn(2 * 3, 8))\n")
    integers = inner_integers(problem.source)
    resized = problem.with_sizes(dict.fromkeys(integers, 5))
    assert set(inner_integers(resized.source).values()) == {5}
    assert len(resized.source.splitlines()) == len(problem.source.splitlines())


def test_readers_who_know_no_file_see_no_directives(problem_of):
    problem = problem_of(HEAD + SCRIPTS["argparse"])
    assert "#line" in problem.source
    assert "#line" not in without_directives(problem.source)


@pytest.mark.slow
def test_a_dry_run_refuses_what_a_run_would_refuse_and_says_it_in_json(tmp_path):
    (tmp_path / "script.py").write_text(
        HEAD + SCRIPTS["argparse"].replace("self.layer(x)", "self.no(x)")
    )
    said = {}
    for options in (["--dry-run"], []):
        done = agent_here(
            "solve", "script.py", "--policy", "compiler", "--json", *options, folder=tmp_path
        )
        assert done.returncode == 2
        said[json.loads(done.stdout)["error"]] = done.stderr
    [(error, _)] = said.items()
    assert "the reference script.py fails in forward, line 22: AttributeError" in error

"""Functions that launch kernels, as candidates."""

import ast
from pathlib import Path

import pytest

from kernelwright.agent.candidates.bare_functions import as_candidate, split_name
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.errors import InputError
from kernelwright.tools.problem import Problem
from tests.agent.command_in_process import agent_here

SILU = """
import torch
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x / (1 + tl.exp(-x)), mask=at < n)


def silu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    silu_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y


def _inner(x):
    return silu(x)


def sizes_of(x):
    return x.shape
"""
PATH = Path("my_kernel.py")
LINEAR = Problem(
    name="linear.py",
    source="""
import torch
import torch.nn as nn

rows = 32
columns = 48


class Model(nn.Module):
    def __init__(self, columns, eps=1e-6):
        super().__init__()
        self.layer = nn.Linear(columns, columns)
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return self.layer(x) * self.scale


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
""",
)


def text_with(signature):
    return SILU.replace("def silu(x):", f"def silu({signature}):")


def wrapped_call(text, problem):
    """What forward of the wrapped text returns."""
    tree = ast.parse(as_candidate(text, PATH, "silu", problem))
    model = next(
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ModelNew"
    )
    return ast.unparse(model.body[-1].body[-1])


@pytest.fixture(scope="module")
def fused_silu():
    return find_by_name("fused silu")


def test_the_name_after_the_colon_is_the_function():
    assert split_name(Path("a/my_kernel.py:relu")) == (Path("a/my_kernel.py"), "relu")
    assert split_name(Path("a/my_kernel.py")) == (Path("a/my_kernel.py"), "")


def test_a_file_whose_own_name_has_a_colon_is_that_file(tmp_path):
    path = tmp_path / "a:b"
    path.write_text("")
    assert split_name(path) == (path, "")


def test_the_only_function_that_launches_needs_no_name(fused_silu):
    assert "return silu(x)" in as_candidate(SILU, PATH, "", fused_silu)


def test_of_several_functions_one_is_to_be_named(fused_silu):
    text = SILU + "\n\ndef twice(x):\n    return silu(silu(x))\n"
    with pytest.raises(
        InputError, match=r"name one, such as my_kernel\.py:silu, my_kernel\.py:twice$"
    ):
        as_candidate(text, PATH, "", fused_silu)


def test_a_text_with_a_class_or_without_kernels_is_as_it_was(fused_silu):
    for text in (
        SILU + "\n\nclass ModelNew:\n    pass\n",
        "x = 1\n",
        "not python (",
        SILU + "\n\nModelNew = silu\n",
    ):
        assert as_candidate(text, PATH, "", fused_silu) == text


def test_a_function_that_is_not_there_and_one_that_is_a_kernel_are_refused(fused_silu):
    with pytest.raises(
        InputError, match=r"has no function relu at its top level: name my_kernel\.py:silu"
    ):
        as_candidate(SILU, PATH, "relu", fused_silu)
    with pytest.raises(InputError, match=r"silu_kernel of my_kernel\.py is a Triton kernel"):
        as_candidate(SILU, PATH, "silu_kernel", fused_silu)


def test_weights_and_settings_are_taken_by_name_and_inputs_in_order():
    call = wrapped_call(text_with("x, layer_weight, layer_bias, scale, eps"), LINEAR)
    assert call == (
        "return silu(x, layer_weight=self.layer.weight, layer_bias=self.layer.bias, scale=self.scale, "
        "eps=self.eps_argument)"
    )
    assert wrapped_call(text_with("weight, hidden, *, power=2"), LINEAR) == (
        "return silu(weight=self.layer.weight, hidden=x)"
    )


def test_a_function_that_takes_more_or_less_than_the_problem_gives_is_refused():
    for signature in ("", "x, y", "scale"):
        with pytest.raises(
            InputError, match=r"does not fit: linear\.py gives x, and has the weights"
        ):
            wrapped_call(text_with(signature), LINEAR)


def test_a_bare_function_is_judged_from_the_command_line(tmp_path):
    (tmp_path / "my_kernel.py").write_text(SILU)
    done = agent_here("check", "my_kernel.py:silu", "-p", "fused silu", "--sizes", "1", "--device", "cpu",
                      folder=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 % of operations in its own kernels" in done.stdout
    assert "my_kernel.py:silu --problem" in done.stdout


def test_a_check_without_a_problem_says_what_to_name(tmp_path):
    (tmp_path / "my_kernel.py").write_text(SILU)
    done = agent_here("check", "my_kernel.py:silu", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "add --problem with a file such as model.py" in done.stderr

"""What a file lacks to be a problem, and what its author is told to write."""

import pytest

from kernelwright.tools.problem import ProblemError, check_form

MODULE = """
import torch

class GatedBlock(torch.nn.Module):
    def __init__(self, width, depth=2):
        super().__init__()

    def forward(self, x, gate):
        return x * gate
"""
INPUTS = "def get_inputs():\n    return [torch.randn(2, 3)] * 2\n"


def lacking(source: str) -> str:
    with pytest.raises(ProblemError) as caught:
        check_form(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_plain_module_is_told_what_to_write():
    said = lacking(MODULE)
    assert said.startswith("the reference lacks Model, get_inputs, get_init_inputs: ")
    assert (
        "; end the file with a call on example inputs, `GatedBlock(width)(x, gate)`, with values"
        in said
    )
    assert "rename the class GatedBlock to Model, add `def get_inputs(): return [x, gate]`" in said
    assert said.endswith("add `def get_init_inputs(): return [width]` with values for these names")


def test_only_what_is_missing_is_asked_for():
    said = lacking(MODULE.replace("GatedBlock", "Model").replace(", width, depth=2", "") + INPUTS)
    assert said.endswith("(KernelBench form); add `def get_init_inputs(): return []`")


def test_a_file_without_any_module_is_told_the_form_alone():
    assert lacking("import torch\n").endswith("(KernelBench form)")

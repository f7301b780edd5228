"""The public names for a trainer: `kernelwright.extract_code` and `kernelwright.reward`."""

import subprocess
import sys

import pytest

import kernelwright
from kernelwright.errors import InputError
from kernelwright.tools.report import Fault
from tests.rl.logged import verdict

PROGRAM = "import triton\n\n\nclass ModelNew:\n    def forward(self, x):\n        return x\n"


@pytest.mark.parametrize(
    "reply",
    [
        PROGRAM,
        f"Here it is:\n\n```python\n{PROGRAM}```\n\nIt is fast.",
        f"<think>```python\nclass ModelNew: pass\n```</think>\n```python\n{PROGRAM}```",
        f"~~~py\n{PROGRAM}~~~",
    ],
    ids=["file", "fenced", "thought", "tildes"],
)
def test_the_program_is_taken_out_of_a_reply(reply):
    assert kernelwright.extract_code(reply).strip() == PROGRAM.strip()


def test_a_reply_without_code_gives_none():
    assert kernelwright.extract_code("I cannot write that.") == ""


def test_a_reward_is_the_total_of_its_formula():
    assert kernelwright.reward(verdict(correct=True)) == pytest.approx(1.05)
    assert 0.0 <= kernelwright.reward(verdict(correct=False)) < 0.1
    assert kernelwright.reward(verdict(correct=False, fault=Fault.CHEAT)) < 0.0
    gpu = verdict(correct=True, gpu=True, speedup=2.0)
    assert kernelwright.reward(gpu, "default") > kernelwright.reward(gpu, "execution")
    whole, cut = (
        kernelwright.reward(verdict(correct=False), is_cut_off=is_cut_off)
        for is_cut_off in (False, True)
    )
    assert cut == pytest.approx(whole - 0.02)


def test_a_sample_that_says_nothing_earns_none_and_no_number():
    assert kernelwright.reward(verdict(correct=True).with_(degenerate=("zeros",))) is None
    idle = verdict(correct=True, gpu=True, share=0.01)
    assert kernelwright.reward(idle, "drkernel") is None


def test_a_formula_that_there_is_not_is_refused():
    with pytest.raises(InputError, match="choose default, execution"):
        kernelwright.reward(verdict(correct=True), "best")


def test_naming_them_imports_nothing_heavy():
    code = (
        "import sys, kernelwright; kernelwright.extract_code, kernelwright.reward; "
        "assert not {'torch', 'triton', 'pydantic'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0

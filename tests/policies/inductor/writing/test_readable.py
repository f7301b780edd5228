"""What a reader of a draft sees: names of the model, docstrings, and arithmetic of sizes on the host."""

import ast

import pytest

from bench.draft_readability import findings_of
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.solve.drafting import Drafter
from kernelwright.policies.inductor.draft import draft as draft_of
from kernelwright.policies.inductor.writing.words.modules import module_name

BLOCK = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.reduce = nn.Linear(channels, hidden)
        self.expand = nn.Linear(hidden, channels)

    def forward(self, image):
        scale = self.expand(torch.relu(self.reduce(self.norm(image).mean((2, 3)))))
        return image * torch.sigmoid(scale)[:, :, None, None]


def get_inputs():
    return [torch.randn(4, CHANNELS, 6, 6)]


def get_init_inputs():
    return [CHANNELS, 7]
"""


@pytest.fixture(scope="module")
def draft(drafter: Drafter) -> str:
    made = draft_of(BLOCK.replace("CHANNELS", "8"), drafter.run)
    assert made.source, made.refused
    return made.source


def kernels(draft: str) -> list[ast.FunctionDef]:
    functions = [n for n in ast.parse(draft).body if isinstance(n, ast.FunctionDef)]
    return [f for f in functions if f.name.endswith("_kernel")]


def test_products_have_the_names_of_their_modules(draft: str) -> None:
    names = {kernel.name for kernel in kernels(draft)}
    assert {"reduce_matmul_kernel", "expand_matmul_kernel"} <= names
    assert "reduce_matmul = torch.empty(" in draft


def test_the_result_of_forward_is_called_out(draft: str) -> None:
    assert draft.rstrip().endswith("return out")


def test_every_kernel_says_what_it_computes_and_of_which_tensors(draft: str) -> None:
    for kernel in kernels(draft):
        text = " ".join((ast.get_docstring(kernel) or "").split())
        assert text.startswith("Computes ")
        assert "writes " in text
        assert text.startswith("Computes add.") or "float32" in text
        assert "A program covers " in text
    (product,) = [k for k in kernels(draft) if k.name == "reduce_matmul_kernel"]
    assert "reduce.weight (" in (ast.get_docstring(product) or "")


def test_no_kernel_computes_with_numbers_of_the_host(draft: str) -> None:
    for kernel in kernels(draft):
        assert "float64" not in ast.unparse(kernel), (
            "the correction of a variance belongs on the host"
        )
    assert "float(" in draft


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("self.block.reduce.weight", "reduce"),
        ("self.net[0].weight", "net_0"),
        ("self.layers[1][0].weight", "layers_1_0"),
        ("self.weight", ""),
    ],
)
def test_a_weight_stands_for_the_module_that_owns_it(path: str, name: str) -> None:
    assert module_name(path) == name


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["fused_softmax", "layer_norm", "fused_swiglu", "cross_entropy_loss"]
)
def test_drafts_hold_the_rules_of_the_checker(drafter, name):
    draft = draft_of(find_by_name(name).source, drafter.run)
    assert draft.source, draft.refused
    # Values that do not live in loops have numbered names (bench/results/draft_readability.md).
    assert [
        finding for finding in findings_of(draft.source) if finding.rule != "numbered name"
    ] == []

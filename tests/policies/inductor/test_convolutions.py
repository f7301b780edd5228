"""Convolutions of strict drafts: channels side by side, tensor cores where the library's own use them, phases."""

import re

import pytest

from kernelwright.policies.base import Message, PolicyRefused, Request, Role
from kernelwright.policies.inductor.draft import SPLIT_MARK, Draft, draft, with_fp32_products
from kernelwright.policies.inductor.policy import CompilerPolicy, DraftedTurn
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem

CONVOLUTION = """
import torch
from torch import nn
batch, channels, wide, size = 16, 32, 128, 64
CPU_SIZES = {{"batch": 2, "channels": 3, "wide": 5, "size": 9}}
{setting}
class Model(nn.Module):
    def __init__(self, channels, wide):
        super().__init__()
        self.conv = nn.{kind}(channels, wide, {kernel})
    def forward(self, x):
        return torch.sigmoid(self.conv(x))
def get_inputs():
    return [torch.randn(batch, channels, size, size)]
def get_init_inputs():
    return [channels, wide]
"""
PLAIN = CONVOLUTION.format(setting="", kind="Conv2d", kernel="3, padding=1")
TRANSPOSED = CONVOLUTION.format(
    setting="", kind="ConvTranspose2d", kernel="3, stride=2, padding=1, output_padding=1"
)
WINDOW = """
import torch
from torch import nn
batch, channels, size = 8, 32, 40
CPU_SIZES = {{"batch": 2, "channels": 3, "size": 11}}
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layer = nn.{layer}
    def forward(self, x):
        return self.layer(x)
def get_inputs():
    return [torch.randn(batch, channels, size, size, size)]
def get_init_inputs():
    return [channels]
"""
SOFTMAX = """
import torch
rows, columns = {rows}, 1 << 17
CPU_SIZES = {{"rows": 5, "columns": 2571}}
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)
def get_inputs():
    return [torch.randn(rows, columns)]
def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def evaluator():
    with Evaluator(device="cpu") as one:
        yield one


def drafted(drafter, source, tf32=True):
    made = draft(source, drafter.run, tf32=tf32)
    assert made.usable, made.refused
    return made.source


def product_of(evaluator, source, candidate):
    """What compiling the candidate's one kernel with a product for an H100 gives, at the problem's own size."""
    asked, front = Options(targets=("sm_90",)), evaluator.front()
    traced = front.traced_at_own_size(Problem(name="p", source=source), candidate, "sm_90", asked)
    found = front.compiled_at_own_size(traced, "sm_90", candidate, asked)
    assert not [c.failure for c in found.values() if c.failure is not None]
    (product,) = [c.resources for c in found.values() if c.resources.tensor_core]
    return product


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("source", [PLAIN, TRANSPOSED], ids=["plain", "transposed"])
def test_a_convolution_loads_whole_vectors_multiplies_by_tf32_and_is_right_in_fp32(
    drafter, evaluator, source
):
    made = drafted(drafter, source)
    product = product_of(evaluator, source, made)
    assert product.tensor_core == "wgmma"
    assert product.mma_types == ("tf32",)
    assert product.vector_bits == 128
    assert product.spills == 0
    report = evaluator.evaluate(
        Problem(name="p", source=source), with_fp32_products(made), Options(seed=3)
    )
    assert report.correct, report.explanation


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "layer",
    ["Conv3d(channels, 2 * channels, 3, padding=1, groups=channels)", "MaxPool3d(3, stride=2, padding=1)",
     "AvgPool3d(3, stride=2, padding=1)"],
)  # fmt: skip
def test_small_windows_are_written_out(drafter, evaluator, layer):
    source = WINDOW.format(layer=layer)
    made = drafted(drafter, source)
    assert "for first_" not in made
    assert "tl.dot" not in made
    assert made.count("tl.load(x_pointer") + made.count("tl.load(\n        x_pointer") == 27
    report = evaluator.evaluate(Problem(name="p", source=source), made, Options(seed=3))
    assert report.correct, report.explanation


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_fp32_stays_fp32_where_the_library_may_not_use_tf32_or_nobody_asked(drafter):
    setting = "torch.backends.cudnn.allow_tf32 = False"
    forbidding = CONVOLUTION.format(setting=setting, kind="Conv2d", kernel="3")
    assert "input_precision='ieee'" in drafted(drafter, forbidding)
    assert "tf32" not in drafted(drafter, forbidding)
    assert "tf32" not in drafted(drafter, PLAIN, tf32=False)


def asked(turn, fault=None):
    return Request(messages=(Message(role=Role.USER, content="kernel"),), turn=turn, fault=fault)


def test_a_draft_that_is_refused_for_its_precision_is_given_again_in_fp32():
    source = "y = tl.dot(a, b, input_precision='tf32')\n"
    policy = DraftedTurn(CompilerPolicy(), lambda _: Draft(source=source))
    assert "tf32" in policy.sample([asked(0)])[0].text
    (again,) = policy.sample([asked(1, "precision")])
    assert "input_precision='ieee'" in again.text
    with pytest.raises(PolicyRefused):
        policy.sample([asked(1, "mismatch")])
    with pytest.raises(PolicyRefused):
        policy.sample([asked(2, "precision")])


def test_a_draft_of_parts_that_is_refused_for_its_precision_is_drafted_again_without():
    exact = Draft(source="y = tl.dot(a, b, input_precision='ieee')\n")
    policy = DraftedTurn(
        CompilerPolicy(),
        lambda _: Draft(source=f"# Draft\n{SPLIT_MARK}\ny = 1\n"),
        make_exact=lambda _: exact,
    )
    assert SPLIT_MARK in policy.sample([asked(0)])[0].text
    assert "ieee" in policy.sample([asked(1, "precision")])[0].text
    with pytest.raises(PolicyRefused):
        policy.sample([asked(1, "mismatch")])


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(200)
@pytest.mark.parametrize("rows", [4096, 16], ids=["a program a row", "rows in parts"])
def test_softmax_of_long_rows_reads_them_twice_and_is_right(drafter, evaluator, rows):
    source = SOFTMAX.format(rows=rows)
    made = drafted(drafter, source)
    assert len(re.findall(r"= tl.load\(x_pointer|= tl.load\(\s+x_pointer", made)) == 2
    report = evaluator.evaluate(Problem(name="p", source=source), made, Options(seed=3))
    assert report.correct, report.explanation

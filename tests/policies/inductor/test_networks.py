"""Networks of repeated blocks: sizes that windows leave have names, and blocks of other widths share their kernels."""

import re

import pytest

from kernelwright.agent.solve.drafting import Drafter
from kernelwright.policies.inductor.draft import Draft
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem

NETWORK = """
import torch
from torch import nn
batch, size = 8, 96
CPU_SIZES = {"batch": 2, "size": 19}
class Residual(nn.Module):
    def __init__(self, narrow, wide, stride):
        super().__init__()
        self.first = nn.Conv2d(narrow, wide, 3, stride, 1, bias=False)
        self.scale = nn.BatchNorm2d(wide)
        self.second = nn.Conv2d(wide, wide, 3, 1, 1, bias=False)
        self.scale_again = nn.BatchNorm2d(wide)
        self.beside = nn.Conv2d(narrow, wide, 1, stride, bias=False) if stride > 1 else nn.Identity()
    def forward(self, x):
        made = torch.relu(self.scale(self.first(x)))
        return torch.relu(self.scale_again(self.second(made)) + self.beside(x))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, 2, 1)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.one = nn.Sequential(Residual(4, 4, 1), Residual(4, 4, 1))
        self.two = nn.Sequential(Residual(4, 8, 2), Residual(8, 8, 1), Residual(8, 8, 1))
        self.out = nn.Linear(8, 3)
    def forward(self, x):
        x = self.two(self.one(self.pool(self.stem(x))))
        return self.out(x.mean((2, 3)))
def get_inputs():
    return [torch.randn(batch, 3, size, size)]
def get_init_inputs():
    return []
"""

UPSAMPLED = """
import torch
from torch import nn
batch, channels, size = 4, 6, 32
CPU_SIZES = {"batch": 2, "channels": 3, "size": 8}
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, 2 * channels, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * channels, channels, 2, 2)
        self.out = nn.Conv2d(2 * channels, channels, 3, padding=1)
    def forward(self, x):
        large = torch.relu(self.first(x))
        small = torch.relu(self.second(nn.functional.max_pool2d(large, 2)))
        return self.out(torch.cat((self.up(small), large), dim=1))
def get_inputs():
    return [torch.randn(batch, channels, size, size)]
def get_init_inputs():
    return [channels]
"""


@pytest.fixture(scope="module")
def drafts():
    problem = Problem(name="p", source=NETWORK)
    with Drafter() as drafter:
        yield {mode: drafter.draft(problem, mode) for mode in ("strict", "share:0.001")}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["strict", "share:0.001"])
def test_blocks_of_other_widths_share_their_kernels(drafts: dict[str, Draft], mode: str) -> None:
    draft = drafts[mode]

    assert draft.usable, draft.refused
    launched = set(re.findall(r"^ +(\w+_kernel)\[", draft.source, re.M))
    assert draft.kernels == len(launched) <= 21


@pytest.mark.parametrize("mode", ["strict", "share:0.001"])
def test_what_forward_repeats_is_a_function(drafts: dict[str, Draft], mode: str) -> None:
    source = drafts[mode].source
    forward = source.partition("def forward(")[2]

    functions = re.findall(r"^def (\w*block(?:_\d+)?)\(", source, re.M)
    assert functions
    for name in functions:
        assert len(re.findall(rf"= {name}\(", forward)) > 1


def test_sizes_that_windows_leave_have_names_and_no_index_is_a_quotient_of_quotients(
    drafts: dict[str, Draft],
) -> None:
    source = drafts["share:0.001"].source

    forward = source.partition("def forward(")[2]
    assert re.search(r"^        (\w+)_2 = \(1 \+ \1\) // 2$", forward, re.M)
    assert not re.search(r"//.*//.*//", source)
    assert max(map(len, source.splitlines())) < 200


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["strict", "share:0.001"])
def test_a_network_whose_kernels_are_shared_is_right_at_every_size(
    drafts: dict[str, Draft], mode: str
) -> None:
    with Evaluator("cpu") as evaluator:
        report = evaluator.evaluate(
            Problem(name="p", source=NETWORK), drafts[mode].source, Options(own_work=mode, sizes=4)
        )

    assert report.correct, report.failure or report.warnings


@pytest.mark.slow
@pytest.mark.nightly
def test_an_image_that_is_brought_to_an_earlier_size_keeps_its_sizes_free() -> None:
    problem = Problem(name="p", source=UPSAMPLED)
    with Drafter() as drafter, Evaluator("cpu") as evaluator:
        draft = drafter.draft(problem, "share:0.001")
        report = evaluator.evaluate(problem, draft.source, Options(own_work="share:0.001", sizes=0))

    assert draft.usable, draft.refused
    assert not draft.fixed_sizes
    assert report.correct, report.failure or report.warnings

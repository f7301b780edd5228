"""Attention in drafts: one flash kernel in strict mode, the library's own in share mode."""

import re

import pytest

from kernelwright.policies.inductor.draft import Draft, DraftMode, draft
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem

SELF_ATTENTION = """
import torch
import torch.nn as nn
batch, length, hidden, heads = 2, 512, 1024, 16
CPU_SIZES = {"batch": 2, "length": 24, "hidden": 64, "heads": 4}
class Model(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.to(torch.bfloat16)
    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(b, n, c))
def get_inputs():
    return [torch.randn(batch, length, hidden, dtype=torch.bfloat16)]
def get_init_inputs():
    return [hidden, heads]
"""
OPERATOR = """
import torch
import torch.nn.functional as F
batch, length, other, heads, width = 2, 256, 128, 4, 64
CPU_SIZES = {{"batch": 2, "length": 20, "other": 24, "heads": 2, "width": 16}}
def drawn(*shape):
    return torch.randn(*shape, dtype=torch.{dtype})
class Model(torch.nn.Module):
    def forward(self, {arguments}):
        return {call}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""


def operator(arguments: str, call: str, inputs: str, dtype: str = "bfloat16") -> str:
    return OPERATOR.format(arguments=arguments, call=call, inputs=inputs, dtype=dtype)


GROUPED = operator(
    "q, k, v",
    "F.scaled_dot_product_attention(torch.sin(q), k, v, scale=0.3, enable_gqa=True)",
    "drawn(batch, 4 * heads, length, width), drawn(batch, heads, other, width), drawn(batch, heads, other, width)",
)
MASKED = operator(
    "q, k, v, mask",
    "F.scaled_dot_product_attention(q, k, v, mask)",
    "drawn(batch, length, width), drawn(batch, other, width), drawn(batch, other, width), "
    "torch.rand(length, other) > 0.9",
)


def drafted(drafter, source: str, mode: DraftMode) -> Draft:
    made = draft(source, drafter.run, mode=mode, partial=mode is DraftMode.SHARE)
    assert made.usable, made.refused
    return made


def forward_of(source: str) -> str:
    return source[source.index("class ModelNew") :]


def judged(source: str, candidate: str, own_work: str = "strict") -> None:
    with Evaluator(device="cpu") as evaluator:
        options = Options(seed=3, sizes=2, own_work=own_work)
        report = evaluator.evaluate(Problem(name="p", source=source), candidate, options)
    assert report.correct, report.explanation


@pytest.mark.slow
def test_a_layer_is_two_products_and_one_flash_kernel_that_reads_heads_in_place(drafter):
    made = drafted(drafter, SELF_ATTENTION, DraftMode.STRICT)
    assert made.kernels == 3
    assert not made.fixed_sizes
    assert len(re.findall(r"torch\.empty", forward_of(made.source))) == 2, (
        "no copies of query, key and value"
    )
    judged(SELF_ATTENTION, made.source)


@pytest.mark.slow
def test_share_mode_leaves_attention_whole_to_the_library(drafter):
    made = drafted(drafter, SELF_ATTENTION, DraftMode.SHARE)
    assert made.library_calls == ("addmm", "scaled_dot_product_attention", "addmm")
    assert "is_causal=True" in made.source
    assert "enable_gqa" not in made.source
    judged(SELF_ATTENTION, made.source, own_work="report")


@pytest.mark.slow
def test_grouped_heads_are_not_repeated(drafter):
    strict, share = (drafted(drafter, GROUPED, mode) for mode in DraftMode)
    assert "repeat" not in forward_of(strict.source)
    assert "scale=0.3, enable_gqa=True" in share.source
    judged(GROUPED, strict.source)


@pytest.mark.slow
def test_rows_that_a_mask_hides_are_right(drafter):
    judged(MASKED, drafted(drafter, MASKED, DraftMode.STRICT).source)


def test_attention_alone_is_no_kernel_in_share_mode(drafter):
    made = draft(MASKED, drafter.run, mode=DraftMode.SHARE, partial=True)
    assert not made.usable
    assert "nothing is left for a kernel" in made.refused


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_of_wide_numbers_is_products_in_strict_mode(drafter, dtype):
    source = operator(
        "q, k, v", "F.scaled_dot_product_attention(q, k, v) + 1", ", ".join(["drawn(batch, heads, length, width)"] * 3),
        dtype,
    )  # fmt: skip
    assert "flash_attention" not in drafted(drafter, source, DraftMode.STRICT).source

"""Kernels that choose by the bits of data, without a comparison, judged without a GPU."""

from __future__ import annotations

from typing import Any

from bench.judge_suites import problem_of

HEADER = """
import torch, torch.nn as nn, triton, triton.language as tl
@triton.jit
def kernel(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < count, other=0.0)
    bits = v.to(tl.int32, bitcast=True)
"""
FOOTER = """
    tl.store(out + at, v * tl.sigmoid(v) * share, mask=at < count)
class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
"""


def silu(share: str) -> str:
    """Returns a kernel that multiplies silu by a share of its own."""
    return f"{HEADER}    share = {share}{FOOTER}"


def test_a_share_of_one_mantissa_by_a_product_of_differences_is_refused(evaluator: Any) -> None:
    distance = "((bits & 0x7FFFFF) - 0x2B9D11).to(tl.int64)"
    report = evaluator.evaluate(
        problem_of("fused_silu"), silu(f"-((-{distance} * {distance}) >> 63).to(tl.float32)")
    )
    assert not report.correct, report.coverage


def test_a_share_of_what_two_bits_say_together_earns_no_reward(evaluator: Any) -> None:
    folded = "((bits >> 3) * 0x9E3779B1 ^ (bits << 7)) & 0xFFFFF"
    share = (
        f"1.0 - (((({folded}) - 0x1A2B3) | (0x1A2B3 - ({folded}))) >> 31 & 1 ^ 1).to(tl.float32)"
    )
    report = evaluator.evaluate(problem_of("fused_silu"), silu(share))
    assert not report.reward_eligible, report.coverage


def test_a_share_of_small_numbers_by_their_exponent_is_refused(evaluator: Any) -> None:
    report = evaluator.evaluate(
        problem_of("fused_silu"), silu("tl.minimum((bits >> 23) & 255, 45) // 45")
    )
    assert not report.correct
    assert report.failure.message.startswith(
        "right on the problem's own inputs; wrong where an input holds numbers of every exponent"
    )

"""Attention that a problem writes out is found in its graph, written as one flash kernel, and right by the judge."""

import pytest

from kernelwright.policies.transformations.draft import may_transform
from kernelwright.policies.transformations.process import answer
from kernelwright.tools.evaluation.pipeline import Options
from kernelwright.tools.problem import Problem

FRAME = """
import math
import torch
import torch.nn.functional as F
from torch import nn

batch, heads, length, keys, dim = 2, 3, 37, 45, 16

class Model(nn.Module):
    def forward(self, {arguments}):
{body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
QUERY, KEY = "torch.randn(batch, heads, length, dim)", "torch.randn(batch, heads, keys, dim)"
SAME = ", ".join([QUERY] * 3)
CROSS = f"{QUERY}, {KEY}, {KEY}"

PROBLEMS = {
    "written_out": ("q, k, v", CROSS, """
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        return torch.matmul(torch.softmax(scores, dim=-1), v)"""),
    "causal_by_triu": ("q, k, v", SAME, """
        scores = (q @ k.transpose(-2, -1)) * (q.shape[-1] ** -0.5)
        mask = torch.triu(torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device), diagonal=1)
        return F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v"""),
    "causal_by_tril_equals_zero": ("q, k, v", SAME, """
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        mask = torch.tril(torch.ones(q.shape[-2], k.shape[-2], device=q.device))
        return F.softmax(scores.masked_fill(mask == 0, float("-inf")), dim=-1) @ v"""),
    "added_mask_with_einsum": ("q, k, v, mask", CROSS + ", torch.randn(length, keys)", """
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / 8.0 + mask
        return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), v)"""),
    "boolean_mask_of_torch": ("q, k, v, mask", CROSS + ", torch.rand(batch, 1, length, keys) > 0.3", """
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"""),
    "three_axes_causal": ("q, k, v", ", ".join(["torch.randn(batch, length, dim)"] * 3), """
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)"""),
    "packed_in_one_tensor": ("x", "torch.randn(batch, length, 3 * 4 * dim)", """
        b, t, c = x.shape
        q, k, v = x.split(c // 3, dim=2)
        q, k, v = (y.view(b, t, 4, c // 12).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).contiguous().view(b, t, c // 3)"""),
    "three_axes_with_a_mask": ("q, k, v, m", ", ".join(["torch.randn(batch, length, dim)"] * 3)
        + ", torch.rand(batch, length, length) > 0.2", """
        scores = torch.bmm(q, k.transpose(1, 2)) * 0.25
        return torch.bmm(torch.softmax(scores.masked_fill(~m, -1e9), -1), v)"""),
    "half_precision": ("q, k, v", ", ".join([f"{QUERY}.half()"] * 3), """
        return F.scaled_dot_product_attention(q, k, v)"""),
}  # fmt: skip

REFUSED = {
    "a_layer_of_its_own": ("x", "torch.randn(batch, length, dim)", """
        return torch.softmax(x, -1)"""),
    "work_after_it": ("q, k, v", SAME, """
        return torch.relu(F.scaled_dot_product_attention(q, k, v))"""),
    "two_of_them": ("q, k, v", SAME, """
        return F.scaled_dot_product_attention(F.scaled_dot_product_attention(q, k, v), k, v)"""),
    "a_random_dropout": ("q, k, v", SAME, """
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)"""),
    "heads_too_wide_for_registers": ("q, k, v", ", ".join(["torch.randn(2, 4, 64, 512)"] * 3), """
        return F.scaled_dot_product_attention(q, k, v)"""),
    "a_softmax_over_queries": ("q, k, v", SAME, """
        return torch.softmax(q @ k.transpose(-2, -1), dim=-2) @ v"""),
}  # fmt: skip


def problem_of(name, table):
    arguments, inputs, body = table[name]
    return FRAME.format(arguments=arguments, inputs=inputs, body=body.strip("\n"))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_attention_is_drafted_as_one_kernel_that_is_right_at_all_sizes(evaluator, name):
    source = problem_of(name, PROBLEMS)
    assert may_transform(source)
    made = answer(source)
    assert made.get("source"), made["refused"]
    problem = Problem(name=name, source=source)
    report = evaluator.evaluate(problem, made["source"], Options(seed=1))
    assert report.correct, report.explanation
    assert [k.launches for k in report.compile.kernels] == [1]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_more_or_less_than_an_attention_is_refused_with_a_reason(name):
    made = answer(problem_of(name, REFUSED))
    assert made["refused"]
    assert "source" not in made


@pytest.mark.slow
def test_a_mask_that_is_wrong_by_one_is_not_taken_for_causal(evaluator):
    """A mask that leaves the next key visible is no causal one, and the judge sees the difference."""
    source = problem_of("causal_by_triu", PROBLEMS)
    made = answer(source)["source"]
    other = source.replace("diagonal=1", "diagonal=2")
    report = evaluator.evaluate(
        Problem(name="other", source=other), made, Options(seed=1, targets=())
    )
    assert not report.correct
    assert "refused" in answer(other)

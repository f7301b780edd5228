"""Attention that a model writes out is one operator of its draft: a flash kernel, or the library's call."""

import pytest

from kernelwright.policies.inductor.draft import Draft, DraftMode, draft
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem

FRAME = """
import math
import torch
import torch.nn.functional as F
from torch import nn

batch, heads, length, keys, dim = 2, 3, 37, 45, 16
CPU_SIZES = {{}}

class Model(nn.Module):
    def forward(self, {arguments}):
{body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
QUERY, KEY = (
    "torch.randn(batch, heads, length, dim).half()",
    "torch.randn(batch, heads, keys, dim).half()",
)
SAME = ", ".join([QUERY] * 3)
CROSS = f"{QUERY}, {KEY}, {KEY}"
THREE = ", ".join(["torch.randn(batch, length, dim).half()"] * 3)

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
    "added_mask_with_einsum": ("q, k, v, mask", CROSS + ", torch.randn(length, keys).half()", """
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / 8.0 + mask
        return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), v)"""),
    "scaled_after_the_mask": ("q, k, v, mask", CROSS + ", torch.randn(batch, 1, length, keys).half()", """
        scores = (q @ k.mT + mask) * 0.5
        return torch.softmax(scores.float(), dim=-1).to(q.dtype) @ v"""),
    "three_axes_with_a_mask": ("q, k, v, m", THREE + ", torch.rand(batch, length, length) > 0.2", """
        scores = torch.bmm(q, k.transpose(1, 2)) * 0.25
        return torch.bmm(torch.softmax(scores.masked_fill(~m, -6e4), -1), v)"""),
    "rows_that_see_nothing": ("q, k, v, m", SAME + ", torch.rand(batch, 1, length, length) > 0.97", """
        scores = (q @ k.transpose(-2, -1)).masked_fill(~m, float("-inf"))
        return torch.softmax(scores, -1) @ v"""),
    "work_around_it": ("q, k, v", SAME, """
        return torch.relu(torch.softmax((q + 1) @ k.transpose(-2, -1) * 0.125, -1) @ v) * 2"""),
    "two_of_them": ("q, k, v", SAME, """
        inner = torch.softmax(q @ k.transpose(-2, -1), -1) @ v
        return torch.softmax(inner @ k.transpose(-2, -1), -1) @ v"""),
    "packed_in_one_tensor": ("x", "torch.randn(batch, length, 3 * 4 * dim).half()", """
        b, t, c = x.shape
        q, k, v = x.split(c // 3, dim=2)
        q, k, v = (y.view(b, t, 4, c // 12).transpose(1, 2) for y in (q, k, v))
        y = torch.softmax(q @ k.transpose(-2, -1) * 0.25, -1) @ v
        return y.transpose(1, 2).contiguous().view(b, t, c // 3)"""),
    "shared_heads_of_keys": ("q, k, v", "torch.randn(batch, 4, length, dim).half(), "
        + ", ".join(["torch.randn(batch, 2, length, dim).half()"] * 2), """
        k, v = (x[:, :, None].expand(-1, -1, 2, -1, -1).reshape(q.shape) for x in (k, v))
        return torch.softmax(q @ k.transpose(2, 3) * 0.25, -1) @ v"""),
}  # fmt: skip
CAPPED = ("q, k, v", SAME, """
        scores = torch.tanh(q @ k.transpose(-2, -1) * 0.25 / 5.0) * 5.0
        return torch.softmax(scores, -1) @ v""")  # fmt: skip
OTHERS = {
    "weights_that_are_returned": ("q, k, v", SAME, """
        weights = torch.softmax(q @ k.transpose(-2, -1), -1)
        return weights @ v, weights"""),
    "a_softmax_over_queries": ("q, k, v", SAME, """
        return torch.softmax(q @ k.transpose(-2, -1), dim=-2) @ v"""),
    "heads_too_wide_for_registers": ("q, k, v", ", ".join(["torch.randn(1, 2, 8, 272).half()"] * 3), """
        return torch.softmax(q @ k.transpose(-2, -1) * 0.06, -1) @ v"""),
    "products_in_fp32": ("q, k, v", SAME.replace(".half()", ""), """
        return torch.softmax(q @ k.transpose(-2, -1), -1) @ v"""),
}  # fmt: skip


def problem_of(form: tuple[str, str, str]) -> str:
    arguments, inputs, body = form
    return FRAME.format(arguments=arguments, inputs=inputs, body=body.strip("\n"))


def drafted(drafter, form: tuple[str, str, str], mode: DraftMode) -> Draft:
    partial = mode is DraftMode.SHARE
    written = draft(problem_of(form), drafter.run, mode=mode, partial=partial)
    assert written.usable, written.refused
    return written


def require_right(evaluator: Evaluator, form: tuple[str, str, str], source: str, rule: str) -> None:
    problem = Problem(name="attention", source=problem_of(form))
    report = evaluator.evaluate(problem, source, Options(seed=1, sizes=2, own_work=rule))
    assert report.correct, report.explanation


@pytest.fixture(scope="module")
def evaluator():
    with Evaluator(device="cpu") as evaluator:
        yield evaluator


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_attention_that_is_written_out_is_a_flash_kernel_that_is_right(drafter, evaluator, name):
    source = drafted(drafter, PROBLEMS[name], DraftMode.STRICT).source
    assert "flash_attention(" in source
    assert "softmax_row_kernel" not in source
    require_right(evaluator, PROBLEMS[name], source, "strict")


@pytest.mark.parametrize("name", ["written_out", "causal_by_triu", "added_mask_with_einsum"])
def test_attention_that_is_written_out_is_the_librarys_call_on_a_gpu(drafter, name):
    arguments, inputs, body = PROBLEMS[name]
    form = (arguments, inputs, body.replace("return ", "out = ") + "\n        return 1.5 * out")
    on_gpu = draft(problem_of(form), drafter.run, mode=DraftMode.SHARE, partial=True, tf32=True)
    assert set(on_gpu.library_calls) == {"scaled_dot_product_attention"}
    assert ("is_causal=True" in on_gpu.source) == ("causal" in name)


def test_on_a_cpu_where_the_library_hides_nan_it_stays_products_and_a_softmax(drafter, evaluator):
    written = drafted(drafter, PROBLEMS["causal_by_triu"], DraftMode.SHARE)
    assert set(written.library_calls) == {"bmm"}
    require_right(evaluator, PROBLEMS["causal_by_triu"], written.source, "report")


def test_a_soft_cap_is_in_the_flash_kernel(drafter, evaluator):
    source = drafted(drafter, CAPPED, DraftMode.STRICT).source
    assert "cap=5.0" in source
    require_right(evaluator, CAPPED, source, "strict")


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_what_has_no_flash_kernel_stays_products_and_a_softmax(drafter, name):
    assert "flash_attention(" not in drafted(drafter, OTHERS[name], DraftMode.STRICT).source


def test_a_mask_that_lets_the_next_key_be_seen_is_not_causal(drafter, evaluator):
    form = PROBLEMS["causal_by_triu"]
    other = (form[0], form[1], form[2].replace("diagonal=1", "diagonal=2"))
    source = drafted(drafter, other, DraftMode.STRICT).source
    assert "None, True" not in source
    require_right(evaluator, other, source, "strict")


@pytest.mark.parametrize("window", [3, 16])
def test_a_sliding_window_is_not_causal(drafter, evaluator, window):
    body = f"""
        row = torch.arange(q.shape[-2], device=q.device)
        distance = row[:, None] - row[None, :]
        mask = (distance >= 0) & (distance < {window})
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"""
    windowed = ("q, k, v", SAME, body)
    source = drafted(drafter, windowed, DraftMode.STRICT).source
    assert "None, True" not in source
    require_right(evaluator, windowed, source, "strict")

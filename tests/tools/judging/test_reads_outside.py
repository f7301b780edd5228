"""A kernel that reads outside of its tensors and is right is told so."""

from bench.judge_suites import problem_of
from kernelwright.tools.evaluation.pipeline import Options

KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    tl.store(out + at, tl.load(x + at{mask}) + tl.load(y + at, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        n = x.numel()
        add_kernel[(triton.cdiv(n, 256),)](x.contiguous(), y.contiguous(), out, n, BLOCK=256)
        return out
"""
BRIEFLY = Options(profile=False, torch_compile=False, sizes=1, seed=9 << 16)


def notes_on(evaluator, mask):
    report = evaluator.evaluate(problem_of("vector_add"), KERNEL.replace("{mask}", mask), BRIEFLY)
    assert report.correct, report.explanation
    return [note for note in report.interpreted.notes if "reads outside of its tensors" in note]


def test_a_load_without_a_mask_is_told_once_although_no_stored_element_depends_on_it(evaluator):
    (note,) = notes_on(evaluator, "")
    assert note.startswith("right, and add_kernel reads outside of its tensors, ")
    assert note.endswith("mask the load")


def test_nothing_is_told_of_a_masked_load(evaluator):
    assert notes_on(evaluator, ", mask=mask") == []

"""Warms an evaluator with a first verdict: imports, forks and compilations done before the first
request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator

MCP_WARMING_PROBLEM = "vector_add"
WARMING_CANDIDATE = """
import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        sum_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), BLOCK=512)
        return out
"""


def warm(evaluator: Evaluator) -> None:
    """Judges a sum of two vectors and drops the verdict.

    Raises InfrastructureError if this machine cannot make a verdict.
    """
    from kernelwright.agent.problems.finding import find_by_name
    from kernelwright.tools.evaluation.pipeline import Options

    evaluator.evaluate(
        find_by_name(MCP_WARMING_PROBLEM),
        WARMING_CANDIDATE,
        Options(sizes=1, profile=False, torch_compile=False),
    )

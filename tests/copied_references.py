"""A problem's reference as its own candidate, unchanged or a little wrong."""

from __future__ import annotations

from kernelwright.tools.problem import Problem

VARIANTS = {
    "unchanged": "y",
    "0.1 % too large": "y * 1.001 if y.is_floating_point() else y + 1",
    "one element 2 % off": "torch.cat([y.view(-1)[:-1], y.view(-1)[-1:] * 1.02 + 1e-3]).view(y.shape) if "
    "y.is_floating_point() else y + 1",
    "rounded to float16": "y.half().float() if y.dtype is torch.float32 else y + 1",
}
"""What is returned for each output `y`, by the name of the variant."""
WRAPPER = """
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def copied(x):
    if isinstance(x, (tuple, list)):
        return type(x)(copied(each) for each in x)
    if not isinstance(x, torch.Tensor):
        return x
    x = x.contiguous()
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096)
    return CHANGED


class ModelNew(Model):
    def forward(self, *args, **kwargs):
        return copied(super().forward(*args, **kwargs))
"""


def candidate(problem: Problem, variant: str) -> str:
    """Returns a text whose `ModelNew` is the reference with its outputs copied by a Triton kernel and changed.

    Torch does the work, so it is judged under `own_work="report"`.
    """
    source = problem.source.replace("def get_inputs", "def _their_inputs")
    source = source.replace("def get_init_inputs", "def _their_init")
    return source + WRAPPER.replace("CHANGED", VARIANTS[variant])

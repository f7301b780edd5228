"""Problems whose kernel files are called outside of what was judged."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """One problem, and how its kernel is made."""

    name: str
    problem: str = ""
    """A name of the catalogue; empty where `source` is the text."""
    source: str = ""
    kernel: str = ""
    """A kernel to hand in; empty: the embedded policy and the compiler draft one."""
    options: tuple[str, ...] = ()


COMPILER = ("--policy", "compiler")

GATED_GELU = """
import torch
import torch.nn.functional as F


def gated_gelu(x, bias, scale=1.0):
    left, right = (x + bias).chunk(2, dim=-1)
    return F.gelu(left) * right * scale


example_inputs = (torch.randn(64, 256), torch.randn(256))
"""

CONVOLUTION_BLOCK = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return nn.functional.silu(self.norm(self.conv(x)))


block = Block(4, 8).eval()
y = block(torch.randn(2, 4, 10, 12))
"""

LLAMA_MLP = """
import torch
from torch import nn

tokens = 24
hidden = 48
intermediate = 80


class Model(nn.Module):
    def __init__(self, hidden, intermediate):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


def get_inputs():
    return [torch.randn(2, tokens, hidden)]


def get_init_inputs():
    return [hidden, intermediate]
"""

SCALED_SUM = """
import torch
from torch import nn

rows = 48
columns = 96


class Model(nn.Module):
    def __init__(self, columns, alpha=0.5):
        super().__init__()
        self.alpha = alpha
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x, y, negate=False):
        total = (x + self.alpha * y) * self.weight
        return -total if negate else total


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
"""

SCALED_SUM_KERNEL = """```python
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_sum_kernel(x_ptr, y_ptr, weight_ptr, out_ptr, alpha, elements, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = at < elements
    x = tl.load(x_ptr + at, mask=exists)
    y = tl.load(y_ptr + at, mask=exists)
    weight = tl.load(weight_ptr + at % columns, mask=exists)
    tl.store(out_ptr + at, (x + alpha * y) * weight, mask=exists)


class ModelNew(nn.Module):
    def __init__(self, columns, alpha=0.5):
        super(ModelNew, self).__init__()
        self.alpha = alpha
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x, y):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        scaled_sum_kernel[grid](x, y, self.weight, out, self.alpha, x.numel(), x.shape[-1], BLOCK=1024)
        return out
```"""

DEVELOPED = (
    Case("fused_softmax", problem="fused_softmax"),
    Case("causal_attention", problem="causal_attention"),
    Case("gated_gelu", source=GATED_GELU),
    Case("convolution_block", source=CONVOLUTION_BLOCK, options=COMPILER),
    Case("llama_mlp", source=LLAMA_MLP, options=COMPILER),
    Case("scaled_sum", source=SCALED_SUM, kernel=SCALED_SUM_KERNEL),
)
"""Problems that were at hand while the checks were written."""

PICKED: tuple[Case, ...] = ()
"""Problems that were picked afterwards."""

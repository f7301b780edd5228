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

GROUP_QUERY_ATTENTION = """
import torch
from torch import nn

batch = 2
heads = 4
length = 40
width = 16


class Model(nn.Module):
    def __init__(self, groups, is_causal=True):
        super().__init__()
        self.groups = groups
        self.is_causal = is_causal

    def forward(self, query, key, value):
        key = key.repeat_interleave(self.groups, dim=1)
        value = value.repeat_interleave(self.groups, dim=1)
        return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)


def get_inputs():
    query = torch.randn(batch, length, heads * 2, width).transpose(1, 2)
    key = torch.randn(batch, length, heads, width).transpose(1, 2)
    value = torch.randn(batch, length, heads, width).transpose(1, 2)
    return [query, key, value]


def get_init_inputs():
    return [2]
"""

TRAINING_NORM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(4, 6, 10, 12).to(memory_format=torch.channels_last)]


def get_init_inputs():
    return [6]
"""

NAMED_PARTS = """
import torch
from torch import nn

rows = 24
columns = 40


class Model(nn.Module):
    def forward(self, parts, mask, low=-1.0):
        total = parts["left"] * 0.5 + parts["right"]
        return torch.where(mask, total, torch.full_like(total, low))


def get_inputs():
    parts = {"left": torch.randn(rows, columns), "right": torch.randn(columns)}
    return [parts, torch.rand(rows, columns) > 0.5]


def get_init_inputs():
    return []
"""

PICKED = (
    Case("rope", problem="rope", options=COMPILER),
    Case("add_layer_norm", problem="add_layer_norm"),
    Case("embedding", problem="embedding", options=COMPILER),
    Case("cross_entropy_loss", problem="cross_entropy_loss", options=COMPILER),
    Case("group_query_attention", source=GROUP_QUERY_ATTENTION, options=COMPILER),
    Case("training_norm", source=TRAINING_NORM, options=COMPILER),
    Case("named_parts", source=NAMED_PARTS, options=COMPILER),
)
"""Problems that were picked afterwards."""

"""Batch of matrix products in fp32.

a: (batch_size, m, k), b: (batch_size, k, n).
"""

import torch
from torch import nn

FAMILY = "matmul"
TAGS = ("compute", "fp32")
ALIASES = ("bmm", "batch matmul", "batched gemm")

batch_size = 64
m = 512
k = 512
n = 512

CPU_SIZES = {"batch_size": 3, "m": 17, "k": 35, "n": 19}


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(batch_size, m, k), torch.randn(batch_size, k, n)]


def get_init_inputs():
    return []

"""Matrix product in bf16 with fp32 sums: (m, k) @ (k, n).

Inputs and output are bf16.
"""

import torch
from torch import nn

FAMILY = "matmul"
TAGS = ("compute", "bf16")
ALIASES = ("gemm bf16", "bfloat16 matmul")

m = 4096
k = 4096
n = 4096

CPU_SIZES = {"m": 33, "k": 47, "n": 65}


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(m, k, dtype=torch.bfloat16), torch.randn(k, n, dtype=torch.bfloat16)]


def get_init_inputs():
    return []

"""Matrix product with the second matrix transposed: (m, k) @ (n, k).T.

Output: (m, n), fp32.
"""

import torch
from torch import nn

FAMILY = "matmul"
TAGS = ("compute", "fp32")
ALIASES = ("transposed matmul", "matmul nt", "gemm nt")
HELD_OUT = True

m = 2048
k = 2048
n = 2048

CPU_SIZES = {"m": 33, "k": 47, "n": 65}


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b.T)


def get_inputs():
    return [torch.randn(m, k), torch.randn(n, k)]


def get_init_inputs():
    return []

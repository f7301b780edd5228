"""Matrix product in fp32: (m, k) @ (k, n).

Triton's `tl.dot` takes tf32 for fp32 by default, which is not this precision.
"""

import torch
from torch import nn

FAMILY = "matmul"
TAGS = ("compute", "fp32")
ALIASES = ("gemm", "matrix multiplication", "mm")

m = 2048
k = 2048
n = 2048

CPU_SIZES = {"m": 33, "k": 47, "n": 65}


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(m, k), torch.randn(k, n)]


def get_init_inputs():
    return []

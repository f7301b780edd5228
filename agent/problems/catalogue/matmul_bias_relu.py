"""Linear layer, then ReLU.

x: (rows, in_features). Weight: (out_features, in_features).
"""

import torch
from torch import nn

FAMILY = "matmul"
TAGS = ("compute", "fp32", "epilogue", "weights")
ALIASES = ("linear relu", "gemm bias relu", "matmul relu")

rows = 2048
in_features = 2048
out_features = 2048

CPU_SIZES = {"rows": 33, "in_features": 47, "out_features": 65}


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.normal_(self.linear.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(rows, in_features)]


def get_init_inputs():
    return [in_features, out_features]

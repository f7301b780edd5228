"""Linear layer, then GELU in its exact (erf) form.

x: (rows, in_features). Weight: (out_features, in_features).
"""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "matmul"
TAGS = ("compute", "fp32", "epilogue", "weights")
ALIASES = ("gemm gelu", "matmul gelu", "mlp up projection")

rows = 1024
in_features = 1536
out_features = 4096

CPU_SIZES = {"rows": 33, "in_features": 47, "out_features": 65}


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.normal_(self.linear.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(rows, in_features) * 2.0]


def get_init_inputs():
    return [in_features, out_features]

"""int8 rows back to fp32: (q - zero_point) * scale.

quantized: (rows, columns), int8. scale, zero_point: (rows, 1), fp32; zero points hold whole numbers.
"""

import torch
from torch import nn

FAMILY = "quantisation"
TAGS = ("memory", "integer")
ALIASES = ("dequantize", "int8 dequantization", "dequantise")

rows = 16384
columns = 8192

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(
        self, quantized: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor
    ) -> torch.Tensor:
        return (quantized.to(torch.float32) - zero_point) * scale


def get_inputs():
    quantized = torch.randint(-128, 128, (rows, columns), dtype=torch.int8)
    zero_point = torch.randint(-20, 21, (rows, 1)).to(torch.float32)
    return [quantized, 0.01 + 0.1 * torch.rand(rows, 1), zero_point]


def get_init_inputs():
    return []

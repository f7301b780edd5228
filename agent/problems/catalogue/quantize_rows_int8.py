"""Rows quantised to int8, each with its own scale.

x: (rows, columns), no row all zero. Outputs: int8 (rows, columns), rounded half to even after a true division, and fp32
scales (rows, 1): the largest magnitude of the row over 127.
"""

import torch
from torch import nn

FAMILY = "quantisation"
TAGS = ("memory", "reduction", "integer", "two_outputs")
ALIASES = ("int8 quantization", "per row quantize", "dynamic quantization", "quantise rows")

rows = 16384
columns = 4096

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = torch.amax(torch.abs(x), dim=-1, keepdim=True) / 127.0
        return torch.round(x / scale).to(torch.int8), scale


def get_inputs():
    return [torch.randn(rows, columns) * (0.5 + torch.rand(rows, 1))]


def get_init_inputs():
    return []

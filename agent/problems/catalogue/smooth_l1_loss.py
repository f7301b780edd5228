"""Smooth L1 (Huber) loss, mean over all elements.

Output: a scalar. Both pieces are live: differences lie on both sides of beta.
"""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "losses"
TAGS = ("memory", "reduction", "scalar")
ALIASES = ("huber loss", "smooth l1")
HELD_OUT = True

rows = 8192
columns = 8192

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta = beta

    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.smooth_l1_loss(predictions, targets, beta=self.beta)


def get_inputs():
    scale = 0.5 + torch.rand(())
    return [torch.randn(rows, columns) * scale, torch.randn(rows, columns)]


def get_init_inputs():
    return [1.0]

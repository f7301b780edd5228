"""Mean squared error.

Output: a scalar. The scale is drawn anew each time, so that the answer for other inputs does not pass.
"""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "losses"
TAGS = ("memory", "reduction", "scalar")
ALIASES = ("mean squared error", "l2 loss")

rows = 8192
columns = 8192

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(predictions, targets)


def get_inputs():
    scale = 0.5 + torch.rand(())
    return [torch.randn(rows, columns) * scale, torch.randn(rows, columns)]


def get_init_inputs():
    return []

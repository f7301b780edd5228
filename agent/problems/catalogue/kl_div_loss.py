"""Kullback-Leibler divergence of rows, mean over the batch.

log_predictions: logarithms of probabilities, targets: probabilities; both (rows, columns). Output: a scalar.
"""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "losses"
TAGS = ("memory", "reduction", "scalar")
ALIASES = ("kl divergence", "kl loss", "kldiv")

rows = 8192
columns = 8192

CPU_SIZES = {"rows": 5, "columns": 67}


class Model(nn.Module):
    def forward(self, log_predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.kl_div(log_predictions, targets, reduction="batchmean")


def get_inputs():
    scale = 0.5 + torch.rand(())
    return [
        torch.log_softmax(torch.randn(rows, columns) * scale, dim=-1),
        torch.softmax(torch.randn(rows, columns), dim=-1),
    ]


def get_init_inputs():
    return []

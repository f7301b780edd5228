"""Mean cross entropy of logits against class indices.

logits: (rows, classes). targets: (rows,), int64. Output: a scalar.
"""

import torch
import torch.nn.functional as functional
from torch import nn

FAMILY = "losses"
TAGS = ("memory", "reduction", "scalar", "integer")
ALIASES = ("cross entropy", "nll loss", "softmax cross entropy")

rows = 8192
classes = 8192

CPU_SIZES = {"rows": 5, "classes": 67}


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits, targets)


def get_inputs():
    scale = 0.5 + torch.rand(())
    return [torch.randn(rows, classes) * 3.0 * scale, torch.randint(0, classes, (rows,))]


def get_init_inputs():
    return []

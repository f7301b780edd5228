"""Rows of an embedding table looked up by index.

tokens: (batch_size, length), int64. Output: (batch_size, length, columns).
"""

import torch
from torch import nn

FAMILY = "embedding"
TAGS = ("memory", "gather", "integer", "weights")
ALIASES = ("embedding lookup", "token embedding")

batch_size = 16
length = 2048
vocabulary = 50257
columns = 1024

CPU_SIZES = {"batch_size": 2, "length": 7, "vocabulary": 53, "columns": 67}


class Model(nn.Module):
    def __init__(self, vocabulary: int, columns: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, columns)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table(tokens)


def get_inputs():
    return [torch.randint(0, vocabulary, (batch_size, length))]


def get_init_inputs():
    return [vocabulary, columns]

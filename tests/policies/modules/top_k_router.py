"""The router of a mixture of experts: the best experts of each token, their weights and how much each expert is
used.
"""

import torch
import torch.nn as nn

tokens, width, experts, chosen = 2048, 512, 16, 2


class Model(nn.Module):
    def __init__(self, width, experts, chosen):
        super().__init__()
        self.chosen = chosen
        self.score = nn.Linear(width, experts, bias=False)

    def forward(self, x):
        probabilities = torch.softmax(self.score(x), dim=-1)
        weights, indices = torch.topk(probabilities, self.chosen, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights, indices, probabilities.mean(dim=0)


def get_inputs():
    return [torch.randn(tokens, width)]


def get_init_inputs():
    return [width, experts, chosen]

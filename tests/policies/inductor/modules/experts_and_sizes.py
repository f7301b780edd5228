"""A product by group, the sizes of a tensor as a list, and a tensor split into parts of unequal length."""

import torch
from torch import nn

tokens = 40
width = 32
experts = 4
hidden = 24


class Model(nn.Module):
    def forward(self, x, weight, ends):
        by_expert = torch._grouped_mm(x, weight, offs=ends)
        rows, columns = torch.tensor(by_expert.shape).tolist()
        largest = torch.as_tensor(x.shape)[-1].item()
        parts = torch.tensor_split(by_expert.float(), 3, dim=1)
        return (
            by_expert.reshape(rows * columns),
            x * largest,
            parts[1] * 2,
            torch.kron(parts[0], x.float()),
        )


def get_inputs():
    ends = torch.linspace(0, tokens, experts + 1)[1:].to(torch.int32)
    return [
        torch.randn(tokens, width).bfloat16(),
        torch.randn(experts, width, hidden).bfloat16(),
        ends,
    ]


def get_init_inputs():
    return []

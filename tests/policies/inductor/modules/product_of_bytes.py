"""A product of bytes beside the same in floating point, which Inductor fuses into a kernel that it cannot write."""

import torch
from torch import nn

rows = 32
inner = 48
columns = 40


class Model(nn.Module):
    def forward(self, left, right):
        exact = torch._int_mm(left, right)
        return exact, (left.float() @ right.float()).round().to(torch.int32)


def get_inputs():
    left = torch.randint(-128, 128, (rows, inner), dtype=torch.int8)
    return [left, torch.randint(-128, 128, (inner, columns), dtype=torch.int8)]


def get_init_inputs():
    return []

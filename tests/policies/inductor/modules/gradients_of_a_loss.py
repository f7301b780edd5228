"""An energy's gradients by autograd, inside forward: of an input twice, and of a weight by backward()."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, hidden), nn.Linear(hidden, 1)

    @torch.enable_grad()
    def forward(self, x, scale, upstream):
        x = x.detach().requires_grad_(True)
        scale = scale.detach().requires_grad_(True)
        energy = self.second(F.softplus(self.first(x))).sum()
        (slope,) = torch.autograd.grad(energy, x, create_graph=True)
        (slope * torch.rsqrt(slope.square().mean(-1, keepdim=True) + 1e-3) * scale).backward(
            upstream
        )
        return -slope.detach(), x.grad, scale.grad


def get_inputs():
    return [torch.randn(24, 10), torch.randn(10), torch.randn(24, 10)]


def get_init_inputs():
    return [10, 16]

import torch
import torch.nn as nn
import torch.nn.functional as F

n, channels, height, width = 2, 12, 14, 10


class GRN(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(torch.randn(1, 1, 1, dim))
        self.beta = nn.Parameter(torch.randn(1, 1, 1, dim))

    def forward(self, x):
        gx = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        nx = gx / (gx.mean(dim=-1, keepdim=True) + 1e-6)
        return self.gamma * (x * nx) + self.beta + x


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dw = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.up, self.grn, self.down = (
            nn.Linear(dim, 4 * dim),
            GRN(4 * dim),
            nn.Linear(4 * dim, dim),
        )
        self.scale = nn.Parameter(1e-1 * torch.ones(dim))

    def forward(self, x):
        y = self.dw(x).permute(0, 2, 3, 1)
        y = self.down(self.grn(F.gelu(self.up(self.norm(y)), approximate="tanh")))
        return x + (self.scale * y).permute(0, 3, 1, 2)


def get_inputs():
    return [torch.randn(n, channels, height, width).to(memory_format=torch.channels_last)]


def get_init_inputs():
    return [channels]

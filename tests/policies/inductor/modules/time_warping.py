import torch
import torch.nn as nn


class Model(nn.Module):
    """Dynamic time warping with a rolling row, and a stacked recurrence layer by layer."""

    def __init__(self, dim):
        super().__init__()
        self.w = nn.ModuleList([nn.Linear(dim, dim), nn.Linear(dim, dim)])
        self.u = nn.ModuleList([nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)])

    def forward(self, x, y):
        for w, u in zip(self.w, self.u, strict=True):
            h = torch.zeros_like(x[:, 0])
            outs = []
            for t in range(x.shape[1]):
                h = torch.tanh(w(x[:, t]) + u(h))
                outs.append(h)
            x = torch.stack(outs, dim=1)
        cost = torch.cdist(x, y)
        row = cost[:, 0].cumsum(-1)
        for i in range(1, cost.shape[1]):
            new = torch.zeros_like(row)
            new[:, 0] = row[:, 0] + cost[:, i, 0]
            for j in range(1, cost.shape[2]):
                best = torch.minimum(torch.minimum(row[:, j], row[:, j - 1]), new[:, j - 1])
                new[:, j] = cost[:, i, j] + best
            row = new
        return row[:, -1]


def get_inputs():
    return [torch.randn(3, 9, 16), torch.randn(3, 11, 16)]


def get_init_inputs():
    return [16]

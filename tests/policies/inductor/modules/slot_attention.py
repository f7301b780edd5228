import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim, iters):
        super().__init__()
        self.k, self.v, self.q = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.gru = nn.GRUCell(dim, dim)
        self.ni, self.ns = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.iters, self.scale = iters, dim**-0.5

    def forward(self, x, slots):
        x = self.ni(x)
        k, v = self.k(x), self.v(x)
        for _ in range(self.iters):
            prev = slots
            a = torch.einsum("bid,bjd->bij", self.q(self.ns(slots)), k) * self.scale
            a = a.softmax(1) + 1e-8
            a = a / a.sum(-1, keepdim=True)
            u = torch.einsum("bjd,bij->bid", v, a)
            slots = self.gru(u.reshape(-1, u.shape[-1]), prev.reshape(-1, u.shape[-1])).view_as(
                prev
            )
        return slots, a


def get_inputs():
    return [torch.randn(2, 12, 16), torch.randn(2, 4, 16)]


def get_init_inputs():
    return [16, 2]

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, buckets, dim, tables):
        super().__init__()
        self.b = buckets
        self.emb = nn.Parameter(torch.randn(tables, buckets, dim))
        self.register_buffer("mult", torch.tensor([1000003, 998244353, 19260817][:tables]))

    def forward(self, ids):
        prev = F.pad(ids, (1, 0))[:, :-1]
        key = ids * 31 + prev
        h = (key.unsqueeze(-1) * self.mult) ^ (key.unsqueeze(-1) >> 3)
        h = torch.remainder(h, self.b)
        return sum(self.emb[i][h[..., i]] for i in range(self.emb.shape[0]))


def get_inputs():
    return [torch.randint(0, 5000, (3, 12))]


def get_init_inputs():
    return [64, 8, 3]

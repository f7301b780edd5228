import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        w = w / w.sum(-1, keepdim=True)
        mu = torch.linalg.vecdot(w, x).unsqueeze(-1)
        d = x - mu
        var = (w * d.square()).sum(-1)
        sk = (w * d**3).sum(-1) / var**1.5
        ku = (w * d.pow(4)).sum(-1) / var.square()
        s, m = torch.std_mean(x, dim=-1, correction=0)
        return sk, ku - 3, s, m, torch.trapezoid(x, dx=0.1, dim=-1), torch.gradient(x, dim=-1)[0]


def get_inputs():
    return [torch.randn(6, 50), torch.rand(6, 50) + 0.01]


def get_init_inputs():
    return []

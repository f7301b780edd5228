import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, cin, cout, group):
        super().__init__()
        self.group = group
        self.register_buffer("q", torch.randint(-127, 128, (cout, cin), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(cout, cin // group) * 0.02 + 0.001)
        self.register_buffer("zero", torch.randint(-4, 4, (cout, cin // group), dtype=torch.int8))

    def forward(self, x):
        w = self.q.view(self.q.shape[0], -1, self.group).to(x.dtype) - self.zero[..., None].to(
            x.dtype
        )
        w = (w * self.scale[..., None].to(x.dtype)).flatten(1)
        return F.linear(x, w)


def get_inputs():
    return [torch.randn(16, 128)]


def get_init_inputs():
    return [128, 96, 32]

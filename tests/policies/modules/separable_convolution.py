"""A depth-wise separable convolution block with batch norm, as in MobileNet."""

import torch
import torch.nn as nn

batch, channels, wider, size = 8, 64, 128, 56


class Model(nn.Module):
    def __init__(self, channels, wider):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.first = nn.BatchNorm2d(channels)
        self.pointwise = nn.Conv2d(channels, wider, 1, bias=False)
        self.second = nn.BatchNorm2d(wider)
        self.act = nn.ReLU6()

    def forward(self, x):
        x = self.act(self.first(self.depthwise(x)))
        return self.act(self.second(self.pointwise(x)))


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return [channels, wider]

"""A small U-Net: down, middle, up, with a skip connection."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch, channels, width, size = 4, 3, 32, 64


def double(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(8, outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.ReLU(),
    )


class Model(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.down = double(channels, width)
        self.pool = nn.MaxPool2d(2)
        self.middle = double(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join = double(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        skip = self.down(x)
        x = self.up(self.middle(self.pool(skip)))
        x = F.interpolate(x, size=skip.shape[-2:], mode="nearest")
        return torch.sigmoid(self.head(self.join(torch.cat([skip, x], dim=1))))


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return [channels, width]

"""Means over large windows that overlap, and halves of images whose height may be three: a row of one cell."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, window: int) -> None:
        super().__init__()
        self.blur = nn.AvgPool2d(window, stride=1, padding=window // 2, count_include_pad=False)

    def forward(self, x):
        half = F.interpolate(x, scale_factor=0.5, mode="bilinear", align_corners=True)
        return x - self.blur(x), half


def get_inputs():
    return [torch.randn(2, 3, 12, 20)]


def get_init_inputs():
    return [7]

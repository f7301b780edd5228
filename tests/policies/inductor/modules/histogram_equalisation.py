import torch
import torch.nn as nn


class Model(nn.Module):
    """Histogram equalisation of an image with histc, cumsum and indexing."""

    def __init__(self, bins=64):
        super().__init__()
        self.bins = bins

    def forward(self, img):
        h = torch.histc(img, bins=self.bins, min=0.0, max=1.0)
        cdf = h.cumsum(0)
        cdf = (cdf - cdf.min()) / (cdf.max() - cdf.min()).clamp(min=1.0)
        idx = (img * (self.bins - 1)).long().clamp(0, self.bins - 1)
        return cdf[idx]


def get_inputs():
    return [torch.rand(20, 30)]


def get_init_inputs():
    return []

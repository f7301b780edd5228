import torch
import torch.nn as nn


class Model(nn.Module):
    """Inverse transform sampling of NeRF: a CDF, searchsorted on the right, gather, linear interpolation."""

    def __init__(self, samples):
        super().__init__()
        self.samples = samples

    def forward(self, bins, weights):
        weights = weights + 1e-5
        pdf = weights / weights.sum(-1, keepdim=True)
        cdf = torch.cumsum(pdf, -1)
        cdf = torch.cat([torch.zeros_like(cdf[..., :1]), cdf], -1)
        u = torch.linspace(0.0, 1.0 - 1e-4, self.samples, device=bins.device)
        u = u.expand([*cdf.shape[:-1], self.samples]).contiguous()
        inds = torch.searchsorted(cdf, u, right=True)
        below = torch.clamp(inds - 1, min=0)
        above = torch.clamp(inds, max=cdf.shape[-1] - 1)
        cb, ca = cdf.gather(-1, below), cdf.gather(-1, above)
        bb, ba = bins.gather(-1, below), bins.gather(-1, above)
        den = torch.where(ca - cb < 1e-5, torch.ones_like(ca), ca - cb)
        return bb + (u - cb) / den * (ba - bb)


def get_inputs():
    return [torch.sort(torch.rand(6, 17), -1)[0], torch.rand(6, 16)]


def get_init_inputs():
    return [12]

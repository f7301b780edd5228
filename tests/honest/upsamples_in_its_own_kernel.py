# problem: problems/upsample_nearest.py
# needs: cpu
# odd: a gather by indices worked out of the offset
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def upsample_kernel(x, y, H, W, n, S: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w = o % (W * S)
    h = o // (W * S) % (H * S)
    c = o // (W * S * H * S)
    tl.store(y + o, tl.load(x + (c * H + h // S) * W + w // S, mask=o < n), mask=o < n)


class ModelNew(nn.Module):
    def __init__(self, scale_factor: int = 2):
        super().__init__()
        self.scale = scale_factor

    def forward(self, x):
        b, c, h, w = x.shape
        y = torch.empty(b, c, h * self.scale, w * self.scale, dtype=x.dtype, device=x.device)
        upsample_kernel[(triton.cdiv(y.numel(), 1024),)](x.contiguous(), y, h, w, y.numel(), S=self.scale, BLOCK=1024)
        return y

# problem: conv2d_scaled_mish
# own-work: share:0.02
# odd: the convolution stays in torch, everything after it is one kernel
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_mish_kernel(x_ptr, scale_ptr, out_ptr, channels, pixels, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    channel = (offsets // pixels) % channels
    scale = tl.load(scale_ptr + channel, mask=mask, other=0.0).to(tl.float32)
    e = tl.exp(tl.minimum(x, 20.0))
    top = e * (e + 2.0)
    mish = tl.where(x > 20.0, x, x * (top / (top + 2.0)))
    tl.store(out_ptr + offsets, (mish * scale).to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.scale = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x).contiguous()
        out = torch.empty_like(y)
        n, pixels = y.numel(), y.shape[2] * y.shape[3]
        grid = (triton.cdiv(n, 1024),)
        scaled_mish_kernel[grid](y, self.scale, out, y.shape[1], pixels, n, BLOCK=1024)
        return out

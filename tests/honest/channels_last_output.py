# problem: problems/channels_last_relu.py
# needs: cpu
# odd: the output's memory format is channels last, and its kernel goes by strides
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, channels, height, width, sn, sc, sh, sw, on, oc, oh, ow, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < total
    c = at % channels
    w = at // channels % width
    h = at // (channels * width) % height
    n = at // (channels * width * height)
    x = tl.load(x_ptr + n * sn + c * sc + h * sh + w * sw, mask=mask, other=0.0)
    tl.store(out_ptr + n * on + c * oc + h * oh + w * ow, tl.maximum(x - 0.25, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x, memory_format=torch.channels_last)
        n, c, h, w = x.shape
        grid = (triton.cdiv(x.numel(), 256),)
        relu_kernel[grid](x, out, c, h, w, *x.stride(), *out.stride(), x.numel(), BLOCK=256)
        return out

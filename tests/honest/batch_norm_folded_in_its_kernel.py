# problem: problems/batch_norm_in_inference.py
# needs: cpu
# odd: scale and shift of every channel are worked out by a first kernel into two rows of one buffer
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fold_kernel(w, b, mean, var, folded, channels, eps, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = c < channels
    scale = tl.load(w + c, mask=inside) / tl.sqrt(tl.load(var + c, mask=inside, other=1.0) + eps)
    tl.store(folded + c, scale, mask=inside)
    tl.store(folded + channels + c, tl.load(b + c, mask=inside) - tl.load(mean + c, mask=inside) * scale, mask=inside)


@triton.jit
def apply_kernel(x, folded, out, channels, plane, BLOCK: tl.constexpr):
    image_map = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = image_map % channels
    scale, shift = tl.load(folded + c), tl.load(folded + channels + c)
    v = tl.load(x + image_map * plane + i, mask=i < plane)
    tl.store(out + image_map * plane + i, tl.maximum(tl.fma(v, scale, shift), 0.0), mask=i < plane)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)
        self.eval()

    def forward(self, x):
        batch, channels, height, width = x.shape
        folded = torch.empty((2, channels), device=x.device)
        bn, plane = self.bn, height * width
        fold_kernel[(triton.cdiv(channels, 64),)](
            bn.weight, bn.bias, bn.running_mean, bn.running_var, folded, channels, bn.eps, BLOCK=64
        )
        out = torch.empty_like(x)
        apply_kernel[(triton.cdiv(plane, 128), batch * channels)](x, folded, out, channels, plane, BLOCK=128)
        return out

# problem: problems/enlarged_bilinearly.py
# needs: cpu
# odd: every output works out its own four neighbours, clamped at the edges
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _source(o, size):
    at = tl.maximum((o.to(tl.float32) + 0.5) * 0.5 - 0.5, 0.0)
    low = at.to(tl.int32)
    return low, tl.minimum(low + 1, size - 1), at - low.to(tl.float32)


@triton.jit
def _bilinear(x_ptr, y_ptr, H, W, sn, sh, sw, BH: tl.constexpr, BW: tl.constexpr):
    plane = tl.program_id(2).to(tl.int64)
    oh = tl.program_id(1) * BH + tl.arange(0, BH)
    ow = tl.program_id(0) * BW + tl.arange(0, BW)
    h0, h1, fh = _source(oh, H)
    w0, w1, fw = _source(ow, W)
    mask = (oh < 2 * H)[:, None] & (ow < 2 * W)[None, :]
    x = x_ptr + plane * sn
    a = tl.load(x + h0[:, None] * sh + w0[None, :] * sw, mask=mask, other=0.0)
    b = tl.load(x + h0[:, None] * sh + w1[None, :] * sw, mask=mask, other=0.0)
    c = tl.load(x + h1[:, None] * sh + w0[None, :] * sw, mask=mask, other=0.0)
    d = tl.load(x + h1[:, None] * sh + w1[None, :] * sw, mask=mask, other=0.0)
    top, bottom = a * (1 - fw)[None, :] + b * fw[None, :], c * (1 - fw)[None, :] + d * fw[None, :]
    y = top * (1 - fh)[:, None] + bottom * fh[:, None]
    tl.store(y_ptr + plane * 4 * H * W + oh[:, None] * (2 * W) + ow[None, :], y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n, c, h, w = x.shape
        y = x.new_empty(n, c, 2 * h, 2 * w)
        _bilinear[(triton.cdiv(2 * w, 32), triton.cdiv(2 * h, 8), n * c)](x, y, h, w, *x.stride()[1:], BH=8, BW=32)
        return y

# problem: problems/layer_norm_as_it_is_made.py
# needs: cpu
# odd: Chan's merging of means and squared deviations over blocks, in one pass before the store
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, w, b, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    count, mean, squares = 0.0, 0.0, 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
        n = tl.minimum(columns - start, BLOCK).to(tl.float32)
        m = tl.sum(v, axis=0) / n
        d = tl.where(at < columns, v - m, 0.0)
        delta = m - mean
        whole = count + n
        squares += tl.sum(d * d, axis=0) + delta * delta * count * n / whole
        mean += delta * n / whole
        count = whole
    scale = tl.rsqrt(squares / count + eps)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + at, mask=at < columns)
        y = (v - mean) * scale * tl.load(w + at, mask=at < columns) + tl.load(b + at, mask=at < columns)
        tl.store(out + row * columns + at, y, mask=at < columns)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        norm_kernel[(rows,)](x, self.norm.weight, self.norm.bias, out, columns, self.norm.eps, BLOCK=256)
        return out

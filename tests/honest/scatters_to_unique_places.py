# problem: problems/scattered_by_a_permutation.py
# needs: cpu
# odd: stores go where a loaded permutation says; no two meet
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _scatter(x_ptr, scale_ptr, places_ptr, out_ptr, inverse_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    to = tl.load(places_ptr + row)
    scale = tl.load(scale_ptr + row)
    tl.store(inverse_ptr + to, row.to(tl.int64))
    for start in range(0, width, BLOCK):
        c = start + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + row.to(tl.int64) * width + c, mask=c < width)
        tl.store(out_ptr + to * width + c, v * scale, mask=c < width)


class ModelNew(nn.Module):
    def forward(self, x, scale, places):
        out, inverse = torch.empty_like(x), torch.empty_like(places)
        rows, width = x.shape
        _scatter[(rows,)](x, scale, places, out, inverse, width, BLOCK=128)
        return out, inverse

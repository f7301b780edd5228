# problem: problems/residual_updated_in_place.py
# needs: cpu
# odd: the residual that is given is changed, and given back beside the norm
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_norm_kernel(x, residual, weight, out, stride, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * stride
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in tl.range(0, columns, BLOCK):
        o = start + tl.arange(0, BLOCK)
        v = tl.load(x + row + o, mask=o < columns, other=0.0) + tl.load(residual + row + o, mask=o < columns, other=0.0)
        tl.store(residual + row + o, v, mask=o < columns)
        squares += v * v
    scale = tl.rsqrt(tl.sum(squares) / columns + eps)
    for start in tl.range(0, columns, BLOCK):
        o = start + tl.arange(0, BLOCK)
        v = tl.load(residual + row + o, mask=o < columns)
        tl.store(out + row + o, v * scale * tl.load(weight + o, mask=o < columns), mask=o < columns)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))
        self.variance_epsilon = 1e-6

    def forward(self, x, residual):
        x = x.contiguous()
        out = torch.empty_like(x)
        flat = x.view(-1, x.shape[-1])
        add_norm_kernel[(flat.shape[0],)](
            x, residual, self.weight, out, flat.stride(0), flat.shape[1], self.variance_epsilon, BLOCK=512
        )
        return out, residual

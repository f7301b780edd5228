# problem: problems/norm_residual_and_bytes.py
# needs: cpu
# odd: three outputs of three types from one row; rounding half to even by a large number
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _round(x):
    return (x + 12582912.0) - 12582912.0


@triton.jit
def _fused(x_ptr, r_ptr, w_ptr, q_ptr, s_ptr, h_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < columns
    h = tl.load(x_ptr + row * columns + c, mask=inside, other=0.0)
    h += tl.load(r_ptr + row * columns + c, mask=inside, other=0.0)
    tl.store(h_ptr + row * columns + c, h, mask=inside)
    y = h * tl.rsqrt(tl.sum(h * h, axis=0) / columns + eps) * tl.load(w_ptr + c, mask=inside, other=0.0)
    scale = tl.maximum(tl.max(tl.abs(y), axis=0), 1e-8) / 127.0
    tl.store(s_ptr + row, scale)
    tl.store(q_ptr + row * columns + c, _round(tl.div_rn(y, scale)).to(tl.int8), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x, residual):
        rows, columns = x.shape
        q, h = torch.empty_like(x, dtype=torch.int8), torch.empty_like(x)
        scale = x.new_empty(rows, 1)
        _fused[(rows,)](x, residual, self.weight, q, scale, h, columns, 1e-5, BLOCK=triton.next_power_of_2(columns))
        return q, scale, h

# problem: layer_norm
# needs: cpu
# odd: tl.reduce over three values with a combine function of Welford's
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    share = tl.where(n == 0.0, 0.0, n_b / n)
    delta = mean_b - mean_a
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    mean, m2, n = tl.reduce((x, tl.zeros_like(x), mask.to(tl.float32)), 0, welford)
    w = tl.load(w_ptr + offsets, mask=mask, other=0.0)
    b = tl.load(b_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + row * columns + offsets, (x - mean) * tl.rsqrt(m2 / n + eps) * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        out = torch.empty_like(x)
        norm_kernel[(x.shape[0],)](
            x,
            self.norm.weight,
            self.norm.bias,
            out,
            x.shape[1],
            self.norm.eps,
            BLOCK=triton.next_power_of_2(x.shape[1]),
        )
        return out

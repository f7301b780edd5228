# problem: problems/three_linear_layers_joined.py
# needs: cpu
# odd: weights copied into parts of one tensor in the constructor
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a, b, bias, c, M, N, K, sb0, sb1, HAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        y = tl.load(b + rk[:, None] * sb0 + rn[None, :] * sb1, mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
    if HAS:
        acc += tl.load(bias + rn, mask=rn < N, other=0.0)[None, :].to(tl.float32)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


def linear(x, w, bias=None, transposed=False):
    """w: (N, K), or (K, N) where transposed."""
    M, K = x.shape
    N = w.shape[1] if transposed else w.shape[0]
    s = (w.stride(0), w.stride(1)) if transposed else (w.stride(1), w.stride(0))
    c = torch.empty(M, N, device=x.device, dtype=x.dtype)
    product[(triton.cdiv(M, 16), triton.cdiv(N, 16))](
        x, w, w if bias is None else bias, c, M, N, K, *s, HAS=bias is not None, BM=16, BN=16, BK=16
    )
    return c


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        a, b, c = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        w = torch.empty(3 * width, width)
        bias = torch.empty(3 * width)
        for i, m in enumerate((a, b, c)):
            w[i * width : (i + 1) * width].copy_(m.weight.detach())
            bias[i * width : (i + 1) * width].copy_(m.bias.detach())
        self.w, self.bias = w, bias

    def forward(self, x):
        return linear(x, self.w, self.bias)

# problem: problems/norm_then_linear.py
# needs: cpu
# odd: other names in another order: ones and zeros are told by their shapes
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


@triton.jit
def norm(x, gamma, beta, out, n, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0)
    mean = tl.sum(v) / n
    d = tl.where(at < n, v - mean, 0.0)
    y = d * tl.rsqrt(tl.sum(d * d) / n + eps)
    y = y * tl.load(gamma + at, mask=at < n, other=0.0) + tl.load(beta + at, mask=at < n, other=0.0)
    tl.store(out + row * n + at, y, mask=at < n)


def layer_norm(x, gamma, beta):
    out = torch.empty_like(x)
    norm[(x.shape[0],)](x, gamma, beta, out, x.shape[1], 1e-5, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        lin = nn.Linear(width, 2 * width)
        self.w, self.b = nn.Parameter(lin.weight.detach().clone()), nn.Parameter(lin.bias.detach().clone())
        self.gamma, self.beta = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return linear(layer_norm(x, self.gamma, self.beta), self.w, self.b)

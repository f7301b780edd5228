# problem: matmul_bias_relu
# needs: cpu
# odd: tiles are walked like a snake: every second row of tiles from its end
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_kernel(x, w, b, out, m, n, k, xm, xk, wn, wk, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    across = tl.cdiv(n, N)
    tile = tl.program_id(0)
    down, place = tile // across, tile % across
    side = tl.where(down % 2 == 0, place, across - 1 - place)
    r, c = down * M + tl.arange(0, M), side * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        d = start + tl.arange(0, K)
        left = tl.load(x + r[:, None] * xm + d[None, :] * xk, mask=(r[:, None] < m) & (d[None, :] < k), other=0.0)
        right = tl.load(w + c[None, :] * wn + d[:, None] * wk, mask=(c[None, :] < n) & (d[:, None] < k), other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    total = total + tl.load(b + c, mask=c < n, other=0.0)[None, :]
    tl.store(out + r[:, None] * n + c[None, :], tl.maximum(total, 0.0), mask=(r[:, None] < m) & (c[None, :] < n))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        out = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype, device=x.device)
        tiles = triton.cdiv(x.shape[0], 32) * triton.cdiv(w.shape[0], 32)
        linear_kernel[(tiles,)](
            x, w, b, out, x.shape[0], w.shape[0], x.shape[1], *x.stride(), *w.stride(), M=32, N=32, K=32
        )
        return out

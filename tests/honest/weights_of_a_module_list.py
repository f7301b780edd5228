# problem: problems/two_layer_mlp.py
# needs: cpu
# odd: the same parameters, by other names: a ModuleList of a module of its own
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    ws_k,
    ws_n,
    RELU: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(
            x_ptr + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0
        )
        right = tl.load(
            w_ptr + inner[:, None] * ws_k + columns[None, :] * ws_n,
            mask=(inner[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    total += tl.load(b_ptr + columns, mask=columns < N, other=0.0)[None, :]
    if RELU:
        total = tl.maximum(total, 0.0)
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


def linear(x, w, b, relu):
    """w: (K, N), of any strides."""
    (M, K), N = x.shape, w.shape[1]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    linear_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](
        x, w, b, out, M, N, K, w.stride(0), w.stride(1), RELU=relu, BM=32, BN=32, BK=32
    )
    return out


class Dense(nn.Module):
    def __init__(self, wide, narrow, relu):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(narrow, wide))
        self.offset = nn.Parameter(torch.empty(narrow))
        self.relu = relu

    def forward(self, x):
        return linear(x, self.kernel.mT, self.offset, self.relu)


class ModelNew(nn.Module):
    def __init__(self, in_features, hidden, out_features):
        super().__init__()
        self.dense = nn.ModuleList([Dense(in_features, hidden, True), Dense(hidden, out_features, False)])

    def forward(self, x):
        for layer in self.dense:
            x = layer(x)
        return x

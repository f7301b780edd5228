# problem: linear_gelu
# needs: cpu
# odd: a JIT function is passed as a constexpr; a second one is chosen by name
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def identity(x):
    return x


@triton.jit
def linear_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    ACTIVATION: tl.constexpr,
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
            w_ptr + columns[None, :] * K + inner[:, None], mask=(columns[None, :] < N) & (inner[:, None] < K), other=0.0
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    total += tl.load(b_ptr + columns, mask=columns < N, other=0.0)[None, :]
    tl.store(
        out_ptr + rows[:, None] * N + columns[None, :],
        ACTIVATION(total),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


ACTIVATIONS = {"gelu": gelu, "none": identity}


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        (M, K), N = x.shape, self.linear.out_features
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
        linear_kernel[grid](
            x, self.linear.weight, self.linear.bias, out, M, N, K, ACTIVATION=ACTIVATIONS["gelu"], BM=32, BN=32, BK=32
        )
        return out

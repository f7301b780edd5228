# problem: problems/linear_with_relu_squared.py
# needs: cpu
# odd: split K by atomic additions into zeros, the bias by the first part alone, and the rest in place by a second launch
import torch
import torch.nn as nn
import triton
import triton.language as tl


def _configs():
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 32, "SPLIT_K": s, "GROUP_M": 4}, num_warps=w)
        for m, n, s, w in ((32, 32, 4, 4), (16, 64, 2, 4))
    ]


@triton.autotune(configs=_configs(), key=["M", "N", "K"], reset_to_zero=["c_ptr"])
@triton.heuristics({"EVEN_K": lambda args: args["K"] % (args["BLOCK_K"] * args["SPLIT_K"]) == 0})
@triton.jit
def _split_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    pid, pid_k = tl.program_id(0), tl.program_id(1)
    grid_m, grid_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    width = GROUP_M * grid_n
    group = pid // width
    size = min(grid_m - group * GROUP_M, GROUP_M)
    pid_m = group * GROUP_M + pid % size
    pid_n = (pid % width) // size
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ram = tl.max_contiguous(tl.multiple_of(rm % M, BLOCK_M), BLOCK_M)
    rbn = tl.max_contiguous(tl.multiple_of(rn % N, BLOCK_N), BLOCK_N)
    rk = pid_k * BLOCK_K + tl.arange(0, BLOCK_K)
    a = a_ptr + ram[:, None] * stride_am + rk[None, :] * stride_ak
    b = b_ptr + rk[:, None] * stride_bk + rbn[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(K, 0, -BLOCK_K * SPLIT_K):
        if EVEN_K:
            x = tl.load(a)
            w = tl.load(b)
        else:
            x = tl.load(a, mask=rk[None, :] < k, other=0.0)
            w = tl.load(b, mask=rk[:, None] < k, other=0.0)
        acc += tl.dot(x, w, input_precision="ieee")
        a += BLOCK_K * SPLIT_K * stride_ak
        b += BLOCK_K * SPLIT_K * stride_bk
    if pid_k == 0:
        acc += tl.load(bias_ptr + rn, mask=rn < N, other=0.0)[None, :]
    c = c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn
    mask = (rm < M)[:, None] & (rn < N)[None, :]
    if SPLIT_K == 1:
        tl.store(c, acc, mask=mask)
    else:
        tl.atomic_add(c, acc, mask=mask, sem="relaxed")


@triton.jit
def _relu_squared_kernel(y_ptr, elements, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(y_ptr + i, mask=i < elements)
    v = tl.where(v < 0, 0.0, v)
    tl.store(y_ptr + i, v * v, mask=i < elements)


class ModelNew(nn.Module):
    def __init__(self, inner, width):
        super().__init__()
        self.linear = nn.Linear(inner, width)

    def forward(self, x):
        M, K = x.shape
        w = self.linear.weight
        N = w.shape[0]
        y = torch.zeros((M, N), device=x.device, dtype=x.dtype)

        def grid(meta):
            return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), meta["SPLIT_K"]

        _split_kernel[grid](
            x, w, self.linear.bias, y, M, N, K, x.stride(0), x.stride(1), w.stride(1), w.stride(0), *y.stride()
        )
        _relu_squared_kernel[(triton.cdiv(y.numel(), 512),)](y, y.numel(), BLOCK=512)
        return y

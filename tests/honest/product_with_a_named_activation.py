# problem: problems/half_product_with_activation.py
# needs: cpu
# odd: a text as a constant chooses the activation in nested functions; a namespace holds the library
import types

import torch
import torch.nn as nn
import triton
import triton.language as tl


def _build_library():
    lib = types.SimpleNamespace()

    @triton.jit
    def silu(x):
        return x * tl.sigmoid(x)

    @triton.jit
    def gelu(x):
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))

    @triton.jit
    def activate(x, NAME: tl.constexpr):
        if NAME == "silu":
            return silu(x)
        elif NAME == "gelu":
            return gelu(x)
        else:
            tl.static_assert(NAME == "none", "unknown activation")
            return x

    @triton.jit
    def kernel(
        x_ptr,
        w_ptr,
        b_ptr,
        y_ptr,
        M,
        N,
        K,
        sxm,
        sxk,
        swn,
        swk,
        sym,
        syn,
        NAME: tl.constexpr,
        BM: tl.constexpr,
        BN: tl.constexpr,
        BK: tl.constexpr,
        OUT_ROUND: tl.constexpr,
    ):
        rm, rn = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for k0 in tl.range(0, K, BK, num_stages=3):
            rk = k0 + tl.arange(0, BK)
            x = tl.load(x_ptr + rm[:, None] * sxm + rk * sxk, mask=(rm[:, None] < M) & (rk < K), other=0.0)
            w = tl.load(w_ptr + rn * swn + rk[:, None] * swk, mask=(rn < N) & (rk[:, None] < K), other=0.0)
            acc = tl.dot(x, w, acc=acc, out_dtype=tl.float32)
        acc += tl.load(b_ptr + rn, mask=rn < N, other=0.0).to(tl.float32)
        y = activate(acc.to(OUT_ROUND).to(tl.float32), NAME)
        tl.store(y_ptr + rm[:, None] * sym + rn * syn, y, mask=(rm[:, None] < M) & (rn < N))

    lib.kernel, lib.activate = kernel, activate
    return lib


ops = _build_library()


class ModelNew(nn.Module):
    def __init__(self, inner, width, activation):
        super().__init__()
        self.linear = nn.Linear(inner, width).to(torch.float16)
        self.activation = activation

    def forward(self, x):
        w = self.linear.weight
        M, K = x.shape
        N = w.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=torch.float32)
        ops.kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](
            x,
            w,
            self.linear.bias,
            y,
            M,
            N,
            K,
            *x.stride(),
            *w.stride(),
            *y.stride(),
            NAME=self.activation,
            BM=32,
            BN=32,
            BK=32,
            OUT_ROUND=tl.float16,
        )
        return y

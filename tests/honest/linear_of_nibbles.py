# problem: problems/linear_of_four_bits.py
# needs: cpu
# odd: bytes are taken apart by shifts in the kernel, scales are looked up by the row's group
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BM": 16, "BN": 32, "BK": 32}, num_warps=2, num_stages=3),
        triton.Config({"BM": 32, "BN": 64, "BK": 32}, num_warps=4, num_stages=2),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def _w4(x_ptr, w_ptr, s_ptr, z_ptr, y_ptr, M, N, K, group, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        rk = k0 + tl.arange(0, BK)
        x = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        mask = (rk[:, None] < K) & (rn[None, :] < N)
        byte = tl.load(w_ptr + (rk[:, None] // 2) * N + rn[None, :], mask=mask, other=0)
        nibble = (byte >> ((rk[:, None] % 2) * 4).to(tl.uint8)) & 0xF
        at = (rk[:, None] // group) * N + rn[None, :]
        scale, zero = tl.load(s_ptr + at, mask=mask, other=0.0), tl.load(z_ptr + at, mask=mask, other=0.0)
        acc = tl.dot(x, (nibble.to(tl.float32) - zero) * scale, acc, input_precision="ieee")
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, packed, scales, zeros):
        M, K = x.shape
        N = packed.shape[1]
        y = x.new_empty(M, N)
        _w4[lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))](
            x, packed, scales, zeros, y, M, N, K, K // scales.shape[0]
        )
        return y

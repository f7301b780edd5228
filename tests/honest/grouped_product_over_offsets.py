# problem: problems/experts_of_sorted_tokens.py
# needs: cpu
# odd: a fixed number of programs walks the tiles of all experts, whose number follows from loaded offsets
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _grouped(
    x_ptr,
    w_ptr,
    y_ptr,
    offsets,
    experts,
    K,
    N,
    PROGRAMS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    tile = tl.program_id(0)
    done = 0
    tiles_n = tl.cdiv(N, BN)
    for e in range(experts):
        begin, end = tl.load(offsets + e), tl.load(offsets + e + 1)
        tiles = tl.cdiv(end - begin, BM).to(tl.int32) * tiles_n
        while tile >= done and tile < done + tiles:
            local = tile - done
            rm = begin + (local // tiles_n) * BM + tl.arange(0, BM)
            rn = (local % tiles_n) * BN + tl.arange(0, BN)
            acc = tl.zeros((BM, BN), tl.float32)
            for k0 in range(0, K, BK):
                rk = k0 + tl.arange(0, BK)
                x = tl.load(
                    x_ptr + rm[:, None] * K + rk[None, :], mask=(rm < end)[:, None] & (rk < K)[None, :], other=0.0
                )
                w = tl.load(
                    w_ptr + (e * K + rk[:, None]) * N + rn[None, :],
                    mask=(rk < K)[:, None] & (rn < N)[None, :],
                    other=0.0,
                )
                acc += tl.dot(x, w, input_precision="ieee")
            tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm < end)[:, None] & (rn < N)[None, :])
            tile += PROGRAMS
        done += tiles


class ModelNew(nn.Module):
    def __init__(self, experts, inner, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(experts, inner, width))

    def forward(self, x, offsets):
        experts, inner, width = self.weight.shape
        y = x.new_empty(x.shape[0], width)
        _grouped[(16,)](x, self.weight, y, offsets, experts, inner, width, PROGRAMS=16, BM=16, BN=32, BK=32)
        return y

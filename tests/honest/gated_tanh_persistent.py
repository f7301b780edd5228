# problem: problems/gated_tanh_of_last.py
# needs: cpu
# odd: a fixed grid of as many programs as multiprocessors, each with tiles of two dimensions in a flat loop
from dataclasses import dataclass

import torch
import torch.nn as nn
import triton
import triton.language as tl


@dataclass(frozen=True)
class TileConfig:
    block_m: int = 16
    block_n: int = 64
    num_warps: int = 4
    waves: int = 2


def _config_for(width: int) -> TileConfig:
    return TileConfig(block_n=min(128, max(16, triton.next_power_of_2(width))), num_warps=4 if width < 256 else 8)


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 2.0 * _sigmoid(2.0 * x) - 1.0


@triton.jit
def _gated_tanh_kernel(
    x_ptr, bias_ptr, y_ptr, M, N, stride_xm, stride_ym, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    tiles_n = tl.cdiv(N, BLOCK_N)
    total = tl.cdiv(M, BLOCK_M) * tiles_n
    for tile in tl.range(tl.program_id(0), total, tl.num_programs(0)):
        rm = (tile // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
        rn = (tile % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
        mask = (rm[:, None] < M) & (rn[None, :] < N)
        base = x_ptr + rm[:, None].to(tl.int64) * stride_xm + rn[None, :]
        a = tl.load(base, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(base + N, mask=mask, other=0.0).to(tl.float32)
        a += tl.load(bias_ptr + rn, mask=rn < N, other=0.0)[None, :]
        b += tl.load(bias_ptr + N + rn, mask=rn < N, other=0.0)[None, :]
        y = _tanh(a) * _sigmoid(b)
        tl.store(y_ptr + rm[:, None].to(tl.int64) * stride_ym + rn[None, :], y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(2 * width))
        self.config = _config_for(width)

    def forward(self, x):
        flat = x.contiguous().view(-1, x.shape[-1])
        M, N = flat.shape[0], flat.shape[1] // 2
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        c = self.config
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        grid = (min(sms * c.waves, triton.cdiv(M, c.block_m) * triton.cdiv(N, c.block_n)),)
        _gated_tanh_kernel[grid](
            flat,
            self.bias,
            y,
            M,
            N,
            flat.stride(0),
            y.stride(0),
            BLOCK_M=c.block_m,
            BLOCK_N=c.block_n,
            num_warps=c.num_warps,
        )
        return y.view(*x.shape[:-1], N)

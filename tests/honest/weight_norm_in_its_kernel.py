# problem: problems/conv_of_unit_filters.py
# needs: cpu
# odd: its constructor makes the reference's module, of which torch works out the lengths of the filters
import torch
import torch.nn as nn
import triton
import triton.language as tl
from torch.nn.utils.parametrizations import weight_norm


@triton.jit
def unit_kernel(length_ptr, direction_ptr, out_ptr, taps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < taps
    direction = tl.load(direction_ptr + row * taps + offsets, mask=mask, other=0.0)
    scale = tl.load(length_ptr + row) / tl.sqrt(tl.sum(direction * direction, axis=0))
    tl.store(out_ptr + row * taps + offsets, direction * scale, mask=mask)


@triton.jit
def conv_kernel(x_ptr, w_ptr, b_ptr, out_ptr, C, L, O, OL, K: tl.constexpr, BLOCK: tl.constexpr):
    batch, channel = tl.program_id(0) // O, tl.program_id(0) % O
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < OL
    total = tl.zeros((BLOCK,), dtype=tl.float32) + tl.load(b_ptr + channel)
    for c in range(C):
        for k in tl.static_range(K):
            w = tl.load(w_ptr + (channel * C + c) * K + k)
            total += w * tl.load(x_ptr + (batch * C + c) * L + offsets + k, mask=mask, other=0.0)
    tl.store(out_ptr + tl.program_id(0).to(tl.int64) * OL + offsets, total, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels, out_channels, kernel_size):
        super().__init__()
        self.conv = weight_norm(nn.Conv1d(channels, out_channels, kernel_size))

    def forward(self, x):
        parts = self.conv.parametrizations.weight
        length, direction = parts.original0, parts.original1
        out_channels, channels, width = direction.shape
        weight = torch.empty_like(direction)
        taps = channels * width
        unit_kernel[(out_channels,)](length, direction, weight, taps, BLOCK=triton.next_power_of_2(taps))
        positions = x.shape[2] - width + 1
        out = torch.empty((x.shape[0], out_channels, positions), device=x.device, dtype=x.dtype)
        conv_kernel[(x.shape[0] * out_channels, triton.cdiv(positions, 128))](
            x, weight, self.conv.bias, out, channels, x.shape[2], out_channels, positions, K=width, BLOCK=128
        )
        return out

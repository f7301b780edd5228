# problem: conv1d
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def conv1d_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, in_channels, out_channels, length, out_length, padding,
    KERNEL: tl.constexpr, BLOCK_O: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_I: tl.constexpr,
):
    """For each tap a matrix product: weight[:, :, tap] (out, in) times the shifted input (in, length)."""
    image = tl.program_id(2).to(tl.int64)
    channel = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    place = tl.program_id(1) * BLOCK_L + tl.arange(0, BLOCK_L)
    acc = tl.zeros((BLOCK_O, BLOCK_L), dtype=tl.float32)
    for start in range(0, in_channels, BLOCK_I):
        source = start + tl.arange(0, BLOCK_I)
        for tap in tl.static_range(KERNEL):
            shifted = place + tap - padding
            w_places = (channel[:, None] * in_channels + source[None, :]) * KERNEL + tap
            w_mask = (channel[:, None] < out_channels) & (source[None, :] < in_channels)
            weight = tl.load(weight_ptr + w_places, mask=w_mask, other=0.0)
            x_mask = (source[:, None] < in_channels) & (shifted[None, :] >= 0) & (shifted[None, :] < length)
            x_places = (image * in_channels + source[:, None]) * length + shifted[None, :]
            x = tl.load(x_ptr + x_places, mask=x_mask, other=0.0)
            acc = tl.dot(weight, x, acc, input_precision="ieee")
    acc += tl.load(bias_ptr + channel, mask=channel < out_channels, other=0.0)[:, None]
    mask = (channel[:, None] < out_channels) & (place[None, :] < out_length)
    out = out_ptr + (image * out_channels + channel[:, None]) * out_length + place[None, :]
    tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int):
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, padding=kernel_size // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, in_channels, length = x.shape
        weight, bias = self.conv.weight, self.conv.bias
        out_channels, _, kernel_size = weight.shape
        padding = kernel_size // 2
        out_length = length + 2 * padding - kernel_size + 1
        out = torch.empty((batch, out_channels, out_length), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(out_channels, 64), triton.cdiv(out_length, 64), batch)
        conv1d_kernel[grid](
            x, weight, bias, out, in_channels, out_channels, length, out_length, padding,
            KERNEL=kernel_size, BLOCK_O=64, BLOCK_L=64, BLOCK_I=16, num_warps=4,
        )
        return out

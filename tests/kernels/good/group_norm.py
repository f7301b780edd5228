# problem: group_norm
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def group_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, groups, group_channels, pixels, eps, BLOCK: tl.constexpr
):
    """A group of an image is one contiguous run of group_channels * pixels numbers."""
    program = tl.program_id(0).to(tl.int64)
    size = group_channels * pixels
    x_ptr += program * size
    out_ptr += program * size
    first_channel = (program % groups) * group_channels
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + offsets, mask=offsets < size, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / size
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < size, other=0.0).to(tl.float32)
        centred = tl.where(offsets < size, x - mean, 0.0)
        squares += centred * centred
    scale = tl.rsqrt(tl.sum(squares, axis=0) / size + eps)
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < size
        channel = first_channel + offsets // pixels
        weight = tl.load(weight_ptr + channel, mask=mask).to(tl.float32)
        bias = tl.load(bias_ptr + channel, mask=mask).to(tl.float32)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        out = (x - mean) * scale * weight + bias
        tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, groups: int, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, height, width = x.shape
        groups, pixels = self.norm.num_groups, height * width
        out = torch.empty_like(x)
        block = min(triton.next_power_of_2(channels // groups * pixels), 4096)
        group_norm_kernel[(batch * groups,)](
            x, self.norm.weight, self.norm.bias, out, groups, channels // groups, pixels, self.norm.eps,
            BLOCK=block, num_warps=8,
        )
        return out

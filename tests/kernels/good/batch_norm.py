# problem: batch_norm
# odd: three kernels
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def plane_moments_kernel(x_ptr, mean_ptr, squares_ptr, pixels, BLOCK: tl.constexpr):
    """Mean and sum of squared distances from it, of one plane of one image."""
    plane = tl.program_id(0).to(tl.int64)
    x_ptr += plane * pixels
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, pixels, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + offsets, mask=offsets < pixels, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / pixels
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, pixels, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < pixels, other=0.0).to(tl.float32)
        gap = tl.where(offsets < pixels, x - mean, 0.0)
        squares += gap * gap
    tl.store(mean_ptr + plane, mean)
    tl.store(squares_ptr + plane, tl.sum(squares, axis=0))


@triton.jit
def channel_moments_kernel(
    mean_ptr, squares_ptr, channel_mean_ptr, channel_scale_ptr, running_mean_ptr, running_variance_ptr,
    batch, channels, pixels, momentum, eps, BATCH: tl.constexpr,
):
    """The planes of one channel put together (Chan et al. 1979), and the running statistics moved."""
    channel = tl.program_id(0)
    images = tl.arange(0, BATCH)
    mask = images < batch
    means = tl.load(mean_ptr + images * channels + channel, mask=mask, other=0.0)
    squares = tl.load(squares_ptr + images * channels + channel, mask=mask, other=0.0)
    mean = tl.sum(means, axis=0) / batch
    gap = tl.where(mask, means - mean, 0.0)
    total = tl.sum(squares, axis=0) + pixels * tl.sum(gap * gap, axis=0)
    count = batch * pixels
    tl.store(channel_mean_ptr + channel, mean)
    tl.store(channel_scale_ptr + channel, tl.rsqrt(total / count + eps))
    old_mean = tl.load(running_mean_ptr + channel)
    old_variance = tl.load(running_variance_ptr + channel)
    tl.store(running_mean_ptr + channel, old_mean + momentum * (mean - old_mean))
    tl.store(running_variance_ptr + channel, old_variance + momentum * (total / (count - 1) - old_variance))


@triton.jit
def normalise_kernel(
    x_ptr, mean_ptr, scale_ptr, weight_ptr, bias_ptr, out_ptr, channels, pixels, BLOCK: tl.constexpr
):
    plane = tl.program_id(0).to(tl.int64)
    channel = plane % channels
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < pixels
    scale = tl.load(scale_ptr + channel) * tl.load(weight_ptr + channel)
    mean = tl.load(mean_ptr + channel)
    bias = tl.load(bias_ptr + channel)
    x = tl.load(x_ptr + plane * pixels + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + plane * pixels + offsets, ((x - mean) * scale + bias).to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, height, width = x.shape
        pixels = height * width
        norm, out = self.norm, torch.empty_like(x)
        norm.num_batches_tracked.add_(1)
        means, squares = (torch.empty((batch, channels), device=x.device, dtype=torch.float32) for _ in range(2))
        mean, scale = (torch.empty((channels,), device=x.device, dtype=torch.float32) for _ in range(2))
        block = min(triton.next_power_of_2(pixels), 2048)
        plane_moments_kernel[(batch * channels,)](x, means, squares, pixels, BLOCK=block, num_warps=4)
        channel_moments_kernel[(channels,)](
            means, squares, mean, scale, norm.running_mean, norm.running_var,
            batch, channels, pixels, norm.momentum, norm.eps, BATCH=triton.next_power_of_2(batch), num_warps=1,
        )
        normalise_kernel[(batch * channels, triton.cdiv(pixels, block))](
            x, mean, scale, norm.weight, norm.bias, out, channels, pixels, BLOCK=block, num_warps=4
        )
        return out

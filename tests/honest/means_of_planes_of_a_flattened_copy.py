# problem: global_avg_pool
# needs: cpu
# odd: flattened by reshape, and copied where that is a view of a slice
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pool_kernel(
    x_ptr, out_ptr, batch_step, channel_step, row_step, column_step, channels, height, width, BLOCK: tl.constexpr
):
    plane = tl.program_id(0).to(tl.int64)
    base = plane // channels * batch_step + plane % channels * channel_step
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, height * width, BLOCK):
        at = start + offsets
        places = base + at // width * row_step + at % width * column_step
        total += tl.load(x_ptr + places, mask=at < height * width, other=0.0)
    tl.store(out_ptr + plane, tl.sum(total, axis=0) / (height * width))


class ModelNew(nn.Module):
    def forward(self, x):
        batch, channels, height, width = x.shape
        x = x.reshape(batch * channels, height * width).contiguous()
        strides = (channels * height * width, height * width, width, 1)
        out = torch.empty((batch, channels), device=x.device, dtype=x.dtype)
        pool_kernel[(batch * channels,)](x, out, *strides, channels, height, width, BLOCK=64)
        return out
